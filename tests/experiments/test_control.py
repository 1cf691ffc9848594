"""The four rows of a control: their options, widths of equal size, and that they train."""

from __future__ import annotations

import math

import pytest
import torch
from quick import one_of_each

from graphbench.cli.lightning import build, measure
from graphbench.errors import BadInput
from graphbench.experiments.control import ROWS, ControlRow, control_rows, families, family_of, has_control
from graphbench.experiments.reproduce.controls import controlled
from graphbench.experiments.reproduce.recipes import stand_in_options
from graphbench.experiments.reproduce.tables import find_table
from graphbench.experiments.sweeps import Sweep

#: A recipe of every model with a control.
RECIPES = ("gps/zinc", "sfi-former/pattern", "sft/peptides-func", "deepgraph/zinc")
GLOBAL = {"TransformerAttention", "SparseFlowAttention", "SampledAttention", "DeepGraphLayer"}


class Model:
    """A fake model with a known number of parameters by width and overlay; it records its command lines."""

    def __init__(self, heads=4, **dims):
        self.heads, self.dims, self.asked = heads, dims, []

    def __call__(self, words):
        self.asked.append(list(words))
        given = {
            "hidden_dim": 64,
            "num_heads": self.heads,
            **self.dims,
            "gate": {"init_args": {"dim": 64}},
            "other": 64,
        }
        for word in words:
            name, _, value = word.rpartition("=")
            if name.endswith("init_args.hidden_dim"):
                given["hidden_dim"] = int(value)
        attends = not any(word.endswith(("control-messages", "control-encodings")) for word in words)
        count = (13 if attends else 7) * given["hidden_dim"] ** 2 + 22 * given["hidden_dim"]
        return {"model": {"architecture": {"init_args": given}}}, count


def rows_of(model, recipe=("gps/zinc",), options=()):
    return {row.key: row for row in control_rows(recipe, options, model)}


def test_a_recipe_without_a_control_has_that_of_its_class():
    cases = ((["gps/zinc"], "any"), (["quickstart"], "a.package.GPS"), (["quickstart"], "a.package.GT"))
    assert [family_of(*case) for case in cases] == ["gps", "gps", None]


def test_rows_are_the_overlays_of_the_folder_and_the_recipe_itself():
    rows = rows_of(Model())
    assert list(rows) == list(ROWS)
    assert rows["messages"].recipe == ("gps/zinc", "gps/overlays/control-messages")
    assert (rows["fused"].recipe, rows["fused"].options, rows["fused"].share) == (("gps/zinc",), (), 1.0)
    sft = rows_of(Model(), ("sft/peptides-func",))
    assert sft["attention"].recipe == ("sft/peptides-func",)
    assert sft["fused"].recipe == ("sft/peptides-func", "sft/overlays/control-fused")


@pytest.mark.parametrize("heads", [1, 4, 16])
def test_a_width_is_the_multiple_of_the_heads_that_comes_nearest(heads):
    """In closed form: the root of 7 w^2 + 22 w = 13 64^2 + 22 64 is 86.9."""
    target = 13 * 64**2 + 22 * 64
    exact = (-22 + math.sqrt(22**2 + 28 * target)) / 14
    row = rows_of(Model(heads))["messages"]
    wanted = min(range(heads, 200, heads), key=lambda width: abs(7 * width**2 + 22 * width - target))
    assert row.width == wanted
    assert abs(row.width - exact) <= heads
    assert row.share == pytest.approx((7 * row.width**2 + 22 * row.width) / target)


def test_options_that_equal_the_width_and_name_a_dim_follow_it():
    row = rows_of(Model(1, ffn_dim=64, pe_dim=16))["messages"]
    names = [word.partition("=")[0].partition("init_args.")[2] for word in row.options]
    assert names == ["hidden_dim", "ffn_dim", "gate.init_args.dim"]
    assert {word.partition("=")[2] for word in row.options} == {str(row.width)}


def test_further_options_go_to_every_row():
    model = Model()
    rows_of(model, options=("--data.init_args.batch_size=4",))
    assert all("--data.init_args.batch_size=4" in words for words in model.asked)


def test_a_recipe_without_a_control_is_refused_with_those_that_have_one():
    assert set(families()) == {"gps", "sfi-former", "sft", "deepgraph"}
    assert not has_control(["classic/zinc"])
    with pytest.raises(BadInput, match="deepgraph, gps, sfi-former, sft"):
        control_rows(["classic/zinc"], (), Model())


def test_a_table_gets_four_rows_for_each_and_keeps_the_printed_value_with_its_recipe():
    table = find_table("sfi-former/table-2")
    cells = [table.by_place[row, "pattern"] for row in ("sfi-former", "gcn", "sfi-former-plus")]
    new, found = controlled(table, cells, Model())
    assert new.name == "sfi-former/table-2-control"
    assert [cell.row for cell in found] == [f"sfi-former-{key}" for key in ROWS]
    assert [cell.printed.text for cell in found] == ["", "", "", "0.8674 ± 0.0017"]
    assert found[-1].recipe == cells[0].recipe
    with pytest.raises(BadInput, match="no value of sfi-former/table-2"):
        controlled(table, cells[1:], Model())


def test_a_sweep_trains_the_rows_in_folders_of_their_own_with_their_options():
    rows = [row for recipe in ("gps/zinc", "deepgraph/zinc") for row in control_rows([recipe], (), Model())]
    sized = {" + ".join(row.recipe): row.options for row in rows}
    trainings = [training for _, training in Sweep(list(sized), sized=sized).trainings()]
    assert [training.name for training in trainings[:4]] == [
        "gps-zinc+control-messages", "gps-zinc+control-encodings", "gps-zinc+control-attention", "gps-zinc",
    ]  # fmt: skip
    assert [list(training.configs) for training in trainings] == [list(row.recipe) for row in rows]
    assert [list(training.options) for training in trainings] == [list(row.options) for row in rows]


def made(recipe: str, row: ControlRow):
    """Build a row's model on random graphs of the recipe's specification."""
    words = [word for name in row.recipe for word in ("--config", name)]
    short = ("max_steps=2", "limit_val_batches=0", "logger=false", "enable_checkpointing=false")
    return build("sweep", [*words, *row.options, *stand_in_options([recipe]), *(f"--trainer.{one}" for one in short)])


@pytest.mark.parametrize("recipe", one_of_each(RECIPES, kind=lambda recipe: ""))
def test_rows_of_real_models_have_equal_sizes_the_parts_that_they_name_and_train(recipe):
    for row in control_rows([recipe], (), lambda words: measure("sweep", words)):
        cli = made(recipe, row)
        parameters = [one for one in cli.model.parameters() if one.requires_grad]
        assert row.parameters == sum(one.numel() for one in parameters)
        assert abs(row.share - 1) < 0.05, row
        kinds = {type(module).__name__ for module in cli.model.modules()}
        assert bool(kinds & GLOBAL) == (row.key in ("attention", "fused")), (row, kinds)
        assert bool(cli.model.architecture.required_encodings()) >= (row.key == "encodings"), row
        before = [one.detach().clone() for one in parameters]
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
        assert cli.trainer.global_step == 2
        assert all(bool(one.isfinite().all()) for one in parameters)
        assert any(not torch.equal(old, new) for old, new in zip(before, parameters, strict=True))
