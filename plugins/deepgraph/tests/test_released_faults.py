"""Faults of the authors' released code, one by one (numbered in the README), which ours does not have."""

from __future__ import annotations

import ast
import csv
import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
import yaml
from rdkit import Chem

import graphbench_deepgraph
from graphbench import BenchmarkModule, Features, registry
from graphbench import encodings as encodings_package
from graphbench.benchmarks import CLUSTER, PATTERN, ZINC
from graphbench.benchmarks.molecules.own_file import Molecules
from graphbench.cli import main
from graphbench.contracts import GraphTable
from graphbench.diagnostics import record
from graphbench.encodings.substructures import Substructures
from graphbench.nn import HeadConfig
from graphbench.testing import encode, tiny_batch, tiny_spec, tiny_table
from graphbench_deepgraph import CoverageSampler, DeepGraph

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = {"hidden_dim": 16, "ffn_dim": 24, "num_layers": 2, "num_heads": 2}
WALKS = Substructures(cycles=(), paths=(), stars=(), hops=(), walks=(10,))


def small(kind="both", **options):
    torch.manual_seed(0)
    return DeepGraph(tiny_spec(kind=kind), **SMALL | options).eval()


def table_of(model, nets):
    """Graphs of networkx with one feature, prepared for a model."""
    graphs = []
    for net in nets:
        edges = torch.tensor(list(net.edges()), dtype=torch.int64).reshape(-1, 2).t()
        generator = torch.Generator().manual_seed(len(net))
        graph = {"num_nodes": len(net), "edge_index": torch.cat([edges, edges.flip(0)], 1), "y": torch.zeros(1, 2)}
        graph["x"] = torch.randint(5, (len(net), 1), generator=generator)
        graph["edge_attr"] = torch.randint(4, (2 * edges.shape[1], 1), generator=generator)
        graphs.append(graph)
    return encode(GraphTable.from_graphs(graphs), model.required_encodings())


# -- 1 to 6: order, tokens, bias, labels, evaluation -----------------------------------------------------------------


def first_tokens(model, batch):
    """Tokens that enter the first layer, before the norm, and their layout."""
    prepared = model._prepare(model.precomputed(batch), 0)
    model.embedding_norm = torch.nn.Identity()
    return model._embed(batch, prepared), prepared


def test_depth_first_order_enters_the_encoding():
    """Fault 1, order lost: ours differs from ascending numbers, and does not depend on the numbering."""
    ours, released = small("categorical"), small("categorical", released=True)
    batch = table_of(ours, [nx.gnp_random_graph(12, 0.3, seed=s) for s in range(6)]).batch(range(6))
    prepared = ours._prepare(ours.precomputed(batch), 0).substructures
    ours.substructure_encoder.ordered = False
    ascending = ours._prepare(ours.precomputed(batch), 0).substructures
    assert (prepared != ascending).any(1).float().mean() > 0.5
    assert torch.equal(prepared.sum(1), ascending.sum(1)), "the same edges in another order"
    assert not released.substructure_encoder.ordered


def test_no_substructure_token_is_zeroed():
    """Fault 2, first token zeroed: every token has its encoding, alone and batched with larger graphs."""
    model = small("categorical")
    table = table_of(model, [nx.cycle_graph(size) for size in (4, 9, 6)])
    for rows in ([0], [0, 1, 2], [1, 0]):
        x, prepared = first_tokens(model, table.batch(rows))
        expected = model.substructure_encoder(prepared.substructures, x.dtype)
        assert torch.equal(x[prepared.tokens.substructure], expected)
        assert (x[prepared.tokens.substructure].abs().sum(1) > 0).all()


def test_long_paths_of_batch_mates_do_not_matter():
    """Fault 3, hops beyond a path: a triangle's bias is the same in a batch with a path of 12 nodes."""
    model = small("categorical")
    table = table_of(model, [nx.cycle_graph(3), nx.path_graph(12)])
    with torch.no_grad():
        alone, beside = model(table.batch([0])), model(table.batch([0, 1]))
    assert torch.allclose(alone.graph[0], beside.graph[0], atol=1e-6)


def test_substructures_without_edges_do_not_shift_others():
    """Fault 4: an isolated node's neighbourhood has its own empty matrix; the others keep theirs."""
    model = small("categorical")
    batch = table_of(model, [nx.disjoint_union(nx.empty_graph(1), nx.cycle_graph(5))]).batch([0])
    prepared = model._prepare(model.precomputed(batch), 0)
    members = torch.bincount(prepared.tokens.member_substructure, minlength=len(prepared.tokens.batch))
    size = members[prepared.tokens.substructure]
    edges = prepared.substructures.long().sum(1)
    assert torch.equal(edges[size == 1], torch.zeros_like(edges[size == 1]))
    assert (edges[size > 1] > 0).all()
    assert (size == 1).any()


def test_large_graphs_keep_their_labels():
    """Fault 5, graphs over a limit dropped: node i of the answer is node i of the batch, in a graph of 600 too."""
    # Without edge features, as graphs of this size and density have none: 144,000 edges have 20 million tied paths.
    spec = replace(tiny_spec("node-classification", "categorical"), edge=Features())
    model = DeepGraph(spec, **SMALL, substructures=WALKS, sampling=CoverageSampler(coverage=1)).eval()
    table = encode(tiny_table(spec, sizes=[3, 600, 2]), model.required_encodings())
    batch = table.batch([0, 1, 2])
    with torch.no_grad():
        output = model(batch)
        small_ones = [model(table.batch([number])).node for number in (0, 2)]
    assert len(output.node) == len(batch.y) == 605
    assert torch.allclose(output.node[:3], small_ones[0], atol=1e-5)
    assert torch.allclose(output.node[603:], small_ones[1], atol=1e-5)


def test_evaluation_draws_once_and_training_anew():
    """Fault 6, random at test: evaluation repeats; training does not; several draws are averaged."""
    model = small(attention_dropout=0.0, activation_dropout=0.0)
    batch = tiny_batch(model)
    with torch.no_grad():
        first, second = model(batch), model(batch)
        assert torch.equal(first.graph, second.graph)
        model.train()
        drawn = [model(batch).graph for _ in range(2)]
        assert not torch.equal(*drawn)
        torch.manual_seed(3)
        again = model(batch).graph
        torch.manual_seed(3)
        assert torch.equal(again, model(batch).graph)
        model.eval()
        model.num_draws = 3
        singles = [model._represent(model.precomputed(batch), draw) for draw in range(3)]
        mean = model(batch)
    assert torch.allclose(mean.graph, torch.stack([part.graph for part in singles]).mean(0))
    assert len(mean.tokens) == len(mean.tokens_batch) == sum(len(part.tokens) for part in singles)
    with torch.no_grad(), record(model) as recording:
        model(batch)
    assert len(recording) == 2, "a listener hears one draw"


# -- 7: what is kept is named by its content -------------------------------------------------------------------------


MOLECULES = {"train": ["CCO", "c1ccccc1C", "CC(C)CCl"], "val": ["C1CCC1N", "CCCC=O"], "test": ["OC1CC1C", "CC(C)(C)C"]}


@pytest.fixture
def opened(tmp_path):
    """Write molecules by split, open them as a benchmark with all that DeepGraph needs."""

    def opened(molecules, name="own.csv"):
        rows = [f"{smiles},1.0,{split}" for split, part in molecules.items() for smiles in part]
        path = tmp_path / name
        path.write_text("\n".join(["smiles,value,fold", *rows]))
        data = Molecules(str(path), "value", split="column", split_column="fold", store=str(tmp_path / "store"))
        data.require(DeepGraph(data.spec, **SMALL).required_encodings())
        data.setup()
        return data

    return opened


def kept(folder):
    return {path.name for path in (folder / "store").glob("encoding-*")}


def assert_belongs_to(data, molecules):
    """Every stored column is that of the molecules in its split: distances by RDKit, the rest recomputed."""
    for split, smiles in molecules.items():
        table = data.tables[split]
        for row, text in enumerate(smiles):
            expected = Chem.GetDistanceMatrix(Chem.MolFromSmiles(text))
            assert table.batch([row]).shortest_path_distance.tolist() == expected.flatten().tolist()
        for encoding in data.encodings:
            for name, column in encoding.compute(table).columns.items():
                assert torch.equal(table.columns[name], column), (split, name)


def test_splits_and_files_never_share_what_is_kept(opened, tmp_path):
    """Fault 7, caches by position: each split has its entries, and a file with its splits exchanged reads its own."""
    exchanged = MOLECULES | {"val": MOLECULES["test"], "test": MOLECULES["val"]}
    turned = {split: smiles[::-1] for split, smiles in MOLECULES.items()}
    before = set()
    for name, molecules in (("own", MOLECULES), ("exchanged", exchanged), ("turned", turned)):
        data = opened(molecules, f"{name}.csv")
        assert_belongs_to(data, molecules)
        changed = 2 if name == "exchanged" else 3
        assert len(kept(tmp_path) - before) == changed * len(data.encodings)
        before = kept(tmp_path)


def test_a_changed_file_has_fresh_entries(opened, tmp_path):
    """If one molecule is exchanged under the same name, its split is recomputed and the others are reused."""
    data = opened(MOLECULES)
    before = kept(tmp_path)
    changed = MOLECULES | {"test": ["OC1CC1C", "CC(C)(C)CC"]}
    assert_belongs_to(opened(changed), changed)
    assert len(kept(tmp_path) - before) == len(data.encodings)


def test_nothing_that_is_kept_is_run(opened, tmp_path):
    """Entries are plain arrays and JSON; no module that finds or reads them evaluates text."""
    opened(MOLECULES)
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert {path.suffix for path in files} == {".npy", ".json"}
    for path in files:
        content = np.load(path, allow_pickle=False) if path.suffix == ".npy" else json.loads(path.read_text())
        assert content is not None
    sources = [Path(package.__file__).parent for package in (graphbench_deepgraph, encodings_package)]
    for path in [*sources[0].rglob("*.py"), *sources[1].rglob("*.py"), *(sources[1].parent / "data").rglob("*.py")]:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not {call.id for call in calls if isinstance(call, ast.Name)} & {"eval", "exec"}, path


# -- 8: no two values share a row ------------------------------------------------------------------------------------


def test_features_of_molecules_share_no_row():
    """Fault 8: our tables have a row for each value of each column; tests/nn/test_graphormer.py tries every value."""
    spec = registry.load("benchmarks", "PCQM4M").spec
    ours, released = (DeepGraph(spec, **SMALL, released=flag) for flag in (False, True))
    for part, vocabularies in ((ours.node_embedding, spec.node), (ours.bias.edge_term, spec.edge)):
        (table,) = (p for name, p in part.features.named_parameters() if name.endswith("table"))
        assert len(table) == sum(vocabularies.vocabularies)
    assert len(released.node_embedding.features.table) < sum(spec.node.vocabularies)


# -- 9: every ablation works -----------------------------------------------------------------------------------------


def merged(below, above):
    """Merge the options of two configurations, the second over the first."""
    both = {k: merged(below[k], v) if isinstance(v, dict) and k in below else v for k, v in above.items()}
    return below | both


def architecture_of(*names):
    """Return the merged options of DeepGraph in experiment files, as a small model."""
    options = {}
    for name in names:
        content = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
        options = merged(options, content["model"]["architecture"]["init_args"])
    options["substructures"] = Substructures(**options["substructures"]["init_args"])
    options["sampling"] = CoverageSampler(**options.get("sampling", {}))
    return options | SMALL


#: Overlays of DeepGraph except for depth (see `test_counts.py`); the control's rows are other models.
OVERLAYS = sorted(
    path.stem
    for path in (CONFIGS / "overlays").glob("*.yaml")
    if "architecture:" in path.read_text()
    and "class_path: GPS" not in path.read_text()
    and not path.stem.endswith(("-24", "-48"))
)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_ablation_trains(overlay):
    """Fault 9: each is built over the file of its benchmark and takes a step that changes every parameter it has."""
    name, spec = ("cluster", CLUSTER.spec) if overlay.startswith("walks") else ("zinc", ZINC.spec)
    options = architecture_of(name, f"overlays/{overlay}")
    if overlay != "walks-10":
        assert options != architecture_of(name)
    torch.manual_seed(0)
    module = BenchmarkModule(spec, lambda seen: DeepGraph(seen, **options), HeadConfig(num_layers=1))
    # An odd number of graphs: signs of L1 never cancel.
    batch = encode(tiny_table(spec, sizes=[5, 9, 6]), module.required_encodings()).batch([0, 1, 2])
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    loss = module.evaluate(batch, "train")
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    unchanged = [name for name, p in module.named_parameters() if torch.equal(p, before[name])]
    assert not unchanged


# -- 11: scores ------------------------------------------------------------------------------------------------------


def test_node_tasks_are_scored_unrounded():
    """Fault 11: accuracies of nodes are exact fractions, not multiples of 0.1 %."""
    torch.manual_seed(0)
    module = BenchmarkModule(CLUSTER.spec, lambda spec: DeepGraph(spec, **SMALL, substructures=WALKS)).eval()
    table = encode(tiny_table(CLUSTER.spec, sizes=[211, 190]), module.required_encodings())
    batch = table.batch([0, 1])
    with torch.no_grad():
        module.evaluate(batch, "test")
        guess = module(batch).argmax(1)
    scores = module.scores.of("test").finish()
    right = guess == batch.y.flatten()
    classes = batch.y.flatten().unique()
    assert float(scores["test/accuracy"]) == pytest.approx(int(right.sum()) / 401, abs=1e-7)
    mean = sum(float(right[batch.y.flatten() == c].double().mean()) for c in classes) / len(classes)
    assert float(scores["test/class_accuracy"]) == pytest.approx(mean, abs=1e-6)
    assert abs(float(scores["test/accuracy"]) * 1000 % 1 - 0.5) < 0.499, "rounding would not show"


@pytest.mark.slow
def test_the_best_checkpoint_is_chosen_on_the_unrounded_score(tmp_path, monkeypatch):
    """Three epochs whose validation scores agree to 0.1 %: the second is the best, and is logged as it is."""
    scores = [0.77501, 0.77504, 0.77502]

    def given(self):
        self.log(self.monitor, torch.tensor(scores[min(self.current_epoch, 2)], dtype=torch.float64))

    monkeypatch.setattr(BenchmarkModule, "on_validation_epoch_end", given)
    options = {
        "hidden_dim": 8, "ffn_dim": 8, "num_layers": 1, "num_heads": 2, "local_attention": "false",
    }  # fmt: skip
    arguments = [word for name, value in options.items() for word in (f"--model.architecture.{name}", str(value))]
    run = tmp_path / "run"
    assert main([
        "fit", "--run", str(run), "--model.architecture", "DeepGraph", *arguments, "--data", "CLUSTER",
        "--data.sizes", "[6,2,2]", "--data.root", str(tmp_path), "--trainer.max_epochs", "3",
        "--trainer.accelerator", "cpu", "--trainer.enable_model_summary", "false",
    ]) == 0  # fmt: skip
    assert json.loads((run / "results.json").read_text())["best_epoch"] == 2
    with (run / "metrics.csv").open() as file:
        logged = [float(row["val/class_accuracy"]) for row in csv.DictReader(file) if row["val/class_accuracy"]]
    assert logged == pytest.approx(scores, abs=1e-6)


# -- the protocol ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_checkpoints_are_chosen_on_validation(path):
    """Not on the test split: it is another one than the data validate on, and the monitored score is validation's."""
    content = yaml.safe_load(path.read_text())
    data = registry.load("benchmarks", content["data"]["class_path"])(**content["data"]["init_args"])
    assert "validation" not in data.spec.extra, "a benchmark that validates on its test split says so"
    with torch.device("meta"):
        module = BenchmarkModule(data.spec, lambda spec: DeepGraph(spec, **SMALL))
    assert module.monitor == f"val/{data.spec.metric}"
    assert "monitor" not in json.dumps(content)


@pytest.mark.parametrize("benchmark", [PATTERN, CLUSTER])
def test_node_scores_are_class_averaged(benchmark):
    """Trained with weighted loss and chosen by class-averaged accuracy; plain accuracy is also scored."""
    assert (benchmark.spec.metric, benchmark.spec.loss) == ("class_accuracy", "weighted_cross_entropy")
    module = BenchmarkModule(benchmark.spec, lambda spec: DeepGraph(spec, **SMALL))
    assert {"class_accuracy", "accuracy"} <= set(module.task.build_metrics())
