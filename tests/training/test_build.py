import pytest
import pytorch_lightning as pl

from graphbench import build
from graphbench.errors import BadInput


def test_build_says_what_to_make_of_a_list_of_graphs():
    with pytest.raises(
        BadInput, match=r"a benchmark or its name, but got list; graphs of your own are .*Graphs\(graphs\)"
    ):
        build("GCN", [])


def test_build_makes_a_pair_that_trains(tmp_path):
    lengths = "".join(f"{'C' * number},{number}\n" for number in range(1, 61))
    (tmp_path / "mine.csv").write_text(f"smiles,length\n{lengths}")
    module, data = build(
        "GCN",
        "Molecules",
        model_options={"hidden_dim": 8, "num_layers": 1},
        data_options={"root": str(tmp_path), "file": str(tmp_path / "mine.csv"), "target": "length", "batch_size": 16},
        standardize_targets=True,
    )
    trainer = pl.Trainer(
        max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=1,
    )  # fmt: skip
    trainer.fit(module, data)
    targets = data.tables["train"].columns["y"]
    assert len(targets) == 48
    assert module.task.offset.item() == pytest.approx(targets.mean().item(), rel=1e-4)
    assert module.task.scale.item() == pytest.approx(targets.std(correction=0).item(), rel=1e-4)
