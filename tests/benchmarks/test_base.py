from __future__ import annotations

import dataclasses
import logging
import warnings
from unittest import mock

import pytest
import pytorch_lightning as pl
import torch
from quick import slow
from toy_benchmark import SPEC, Doubled, Mean, Toy, toy_table, trainer

from graphbench.contracts import Features, GraphTable
from graphbench.errors import BadInput


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(Toy, "reads", 0)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    monkeypatch.delenv("GRAPHBENCH_STORE", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def make(tmp_path):
    def make_toy(kind=Toy, **options):
        return kind(**({"root": str(tmp_path), "batch_size": 4} | options))

    return make_toy


@pytest.fixture
def toy(make):
    benchmark = make()
    benchmark.prepare_data()
    benchmark.setup()
    return benchmark


def test_data_are_read_once_per_machine(make):
    for _ in range(2):
        benchmark = make()
        benchmark.prepare_data()
        benchmark.setup("fit")
        benchmark.setup("test")
    assert Toy.reads == 1
    assert {name: len(table) for name, table in benchmark.tables.items()} == {"train": 61, "val": 13, "test": 11}


def test_other_sources_and_versions_are_read_anew(make, monkeypatch):
    for options in ({}, {"seed_of_data": 1}, {"seed_of_data": 1}):
        make(**options).setup()
    assert Toy.reads == 2
    monkeypatch.setattr(Toy, "data_version", 2)
    make().setup()
    assert Toy.reads == 3


def test_a_lost_store_is_filled_again_by_setup_alone(toy, make, caplog):
    folder = next(toy.store.root.glob("table-*"))
    (folder / "train.column.x.npy").unlink()
    again = make()
    with caplog.at_level(logging.WARNING):
        again.setup()
    assert "data of Toy" in caplog.text
    assert torch.equal(again.tables["train"].columns["x"], toy.tables["train"].columns["x"])


def test_parts_make_the_same_benchmark_as_whole_tables(toy, make, tmp_path):
    streamed = make(parts=True, store=str(tmp_path / "elsewhere"))
    streamed.setup()
    for split, table in toy.tables.items():
        first, second = table.batch(range(len(table))), streamed.tables[split].batch(range(len(table)))
        assert all(torch.equal(first[name], second[name]) for name in ("x", "edge_index", "y", "ptr"))


def test_targets_keep_float64(toy):
    """They are rounded only when they are centred, which keeps a small spread next to a large offset."""
    assert toy.tables["val"].columns["y"].dtype == torch.float64


def test_required_encodings_are_in_every_batch(make):
    benchmark = make()
    benchmark.require([Doubled(3)])
    benchmark.prepare_data()
    benchmark.setup()
    for loader in (benchmark.train_dataloader(), benchmark.val_dataloader(), benchmark.test_dataloader()):
        for batch in loader:
            assert torch.equal(batch.doubled, 3 * batch.x)


def test_encodings_required_later_are_added_by_the_next_setup(toy):
    toy.require([Doubled()])
    toy.setup()
    assert "doubled" in toy.tables["train"].columns
    assert Toy.reads == 1


def test_encodings_are_kept_even_if_the_data_are_read_again(make, monkeypatch):
    def prepared():
        benchmark = make()
        benchmark.require([Doubled()])
        benchmark.setup()

    prepared()
    monkeypatch.setattr(Toy, "data_version", 2)
    monkeypatch.setattr(Doubled, "compute", lambda *_: pytest.fail("computed again for equal content"))
    prepared()
    assert Toy.reads == 2


def test_batch_sizes_of_training_and_evaluation(make):
    benchmark = make(eval_batch_size=13)
    benchmark.setup()
    assert len(benchmark.train_dataloader()) == 16
    assert [batch.num_graphs for batch in benchmark.val_dataloader()] == [13]


def test_sampling_seed_is_the_option_then_the_runs_then_zero(make, monkeypatch):
    assert make().sampling_seed() == 0
    monkeypatch.setenv("PL_GLOBAL_SEED", "17")
    assert make().sampling_seed() == 17
    assert make(seed=3).sampling_seed() == 3


def test_fractions_are_nested_and_leave_the_other_splits_alone(make):
    chosen = {}
    for fraction in (0.1, 0.5, 1.0):
        benchmark = make(train_fraction=fraction)
        benchmark.setup()
        chosen[fraction] = {int(g) for batch in benchmark.train_dataloader() for g in batch.graph_id}
        assert len(benchmark.tables["train"]) == len(chosen[fraction])
        assert len(benchmark.tables["val"]) == 13
        assert len(benchmark.ids("train")) == 61
    assert [len(graphs) for graphs in chosen.values()] == [6, 30, 61]
    assert chosen[0.1] < chosen[0.5] < chosen[1.0]


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 0}, {"eval_batch_size": 0}, {"train_fraction": 0.0}, {"num_workers": -1}, {"predict_split": "all"}],
)
def test_options_out_of_range_are_refused(make, options):
    with pytest.raises(BadInput, match=next(iter(options))):
        make(**options)


def test_a_copy_beside_the_step_needs_page_locked_memory(make):
    assert make(copy_stream=True).copy_stream
    with pytest.raises(BadInput, match="pin_memory"):
        make(copy_stream=True, pin_memory=False)


@pytest.mark.parametrize("options", [{"pin_memory": True}, {"copy_stream": True}])
def test_options_of_copies_to_a_card_are_not_dropped_silently_without_one(make, caplog, options):
    data = make(**options)
    data.trainer = mock.Mock()
    data.trainer.strategy.root_device = torch.device("cpu")
    data.prepare_data()
    with caplog.at_level(logging.WARNING):
        data.setup()
    assert next(iter(options)) in caplog.text


def test_a_batch_is_copied_to_a_card_at_once_and_left_where_it_is_already(toy, monkeypatch):
    monkeypatch.setattr("graphbench.benchmarks.base._RUNS_AHEAD", {"meta"})
    batch, card = toy.tables["train"].batch([4, 2]), torch.device("meta")
    there = toy.transfer_batch_to_device(batch, card, 0)
    tensors = {name: value for name, value in batch.to_dict().items() if isinstance(value, torch.Tensor)}
    assert {name: (there[name].shape, there[name].dtype) for name in tensors} == {
        name: (value.shape, value.dtype) for name, value in tensors.items()
    }
    assert len({there[name].untyped_storage()._cdata for name in tensors}) == 1, "views of one buffer"
    assert all(there[name].device == card for name in tensors)
    assert (there.num_graphs, there.max_nodes, there.num_nodes) == (batch.num_graphs, batch.max_nodes, batch.num_nodes)
    assert toy.transfer_batch_to_device(there, card, 0).x is there.x


def test_loaders_need_setup(make):
    with pytest.raises(BadInput, match="Toy is not open yet"):
        make().train_dataloader()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node": Features(vocabularies=(4,))}, r"Toy, train split: graph \d+ has a value outside 0 .. 3"),
        ({"split_sizes": (61, 13, 12)}, r"\(61, 13, 11\) graphs instead of \(61, 13, 12\)"),
        ({"task": "graph-classification", "num_classes": 2}, "y must hold class numbers"),
    ],
)
def test_data_unlike_their_specification_never_enter_the_store(make, change, message):
    class Other(Toy):
        spec = dataclasses.replace(SPEC, **change)

    benchmark = make(Other)
    with pytest.raises(BadInput, match=message):
        benchmark.prepare_data()
    assert not list(benchmark.store.root.glob("table-*"))


@pytest.mark.parametrize(
    ("made", "got"), [({"train": toy_table(5, 0)}, "train"), ([toy_table(5, 0)], "list"), (None, "None")]
)
def test_what_is_no_mapping_of_all_splits_is_named(make, made, got):
    class Short(Toy):
        def read(self):
            return made

    with pytest.raises(BadInput, match=f"train, val, test, got .*{got}"):
        make(Short).prepare_data()


def test_an_empty_split_is_named(make):
    class Empty(Toy):
        def read(self):
            return super().read() | {"val": GraphTable.from_graphs([])}

    with pytest.raises(BadInput, match="'val'"):
        make(Empty).prepare_data()


def test_a_source_without_a_key_is_refused(make):
    class Keyless(Toy):
        def source_key(self):
            return None

    with pytest.raises(BadInput, match="source_key"):
        make(Keyless).prepare_data()


def test_a_constructor_without_its_base_is_refused():
    class Alone(Toy):
        def __init__(self):
            self.batch_size = 4

    with pytest.raises(BadInput, match="Alone"):
        Alone().require([])


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_prediction_visits_every_graph_of_its_split_once(make, split):
    benchmark = make(predict_split=split)
    ids = torch.cat(trainer().predict(Mean(), benchmark))
    assert sorted(ids.tolist()) == list(range(len(benchmark.tables[split])))


def test_overfitting_repeats_its_batches(toy):
    class Watch(Mean):
        def __init__(self):
            super().__init__()
            self.epochs = []

        def training_step(self, batch, batch_idx):
            self.epochs.append(batch.graph_id.tolist())
            return super().training_step(batch, batch_idx)

    model = Watch()
    trainer(max_epochs=2, overfit_batches=3).fit(model, toy)
    assert len(model.epochs) == 6
    assert model.epochs[:3] == model.epochs[3:]


class Stop(pl.Callback):
    """Saves a checkpoint at one hook and stops the fit there."""

    def __init__(self, hook, step, path):
        self.step, self.path = step, path
        setattr(self, hook, self.stop)

    def stop(self, trainer, *_):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("hook", "step", "num_workers"),
    [
        slow("on_train_batch_end", 1, 0),
        ("on_train_batch_end", 7, 1),
        slow("on_train_batch_end", 16, 0),
        slow("on_train_batch_end", 21, 0),
        ("on_validation_end", 16, 0),
        slow("on_train_epoch_end", 32, 0),
    ],
)
def test_a_fit_stopped_anywhere_continues_to_the_same_weights(make, tmp_path, hook, step, num_workers):
    def fit(**options):
        pl.seed_everything(0)
        model, resume = Mean(), options.pop("ckpt_path", None)
        trainer(max_epochs=3, num_sanity_val_steps=0, **options).fit(
            model, make(num_workers=num_workers), ckpt_path=resume, weights_only=True
        )
        return model

    whole = fit()
    path = tmp_path / "last.ckpt"
    with pytest.raises(SystemExit):
        fit(callbacks=[Stop(hook, step, path)])
    resumed = fit(ckpt_path=path)
    for expected, found in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(expected, found)


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")
@pytest.mark.parametrize("injects", [slow(False), True])
def test_two_processes_train_and_score_like_one(make, injects):
    """Also if Lightning would inject its samplers into data loaders."""

    class Even(Toy):
        sizes = (64, 13, 11)  # full batches only: DDP averages the ranks' mean gradients with equal weight

    torch.manual_seed(0)
    single, double = Mean(), Mean()
    double.load_state_dict(single.state_dict())
    results = []
    shared = {"max_epochs": 2, "num_sanity_val_steps": 0}
    two = {"devices": 2, "strategy": "ddp_fork", "use_distributed_sampler": injects}
    for model, batch_size, options in ((single, 8, {"devices": 1}), (double, 4, two)):
        runner, benchmark = trainer(**shared, **options), make(Even, batch_size=batch_size)
        runner.fit(model, benchmark)
        results.append((dict(runner.callback_metrics), runner.test(model, benchmark, verbose=False)[0]))
    (val_one, test_one), (val_two, test_two) = results
    assert (val_one["seen"], test_one["seen"]) == (val_two["seen"], test_two["seen"]) == (13, 11)
    torch.testing.assert_close(val_one["mae"], val_two["mae"], rtol=1e-5, atol=1e-6)
    assert test_one["mae"] == pytest.approx(test_two["mae"], rel=1e-5)


def test_fewer_graphs_than_processes_is_one_clear_error(toy):
    class Wide:
        world_size, global_rank, overfit_batches = 20, 3, 0

    toy.trainer = Wide()
    with pytest.raises(BadInput, match="The Toy val split has 13 graphs, fewer than the 20"):
        toy.val_dataloader()
