"""Programs of torch.export against the models they come from, on graphs of other sizes, and refusals."""

import io
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from graphbench import registry
from graphbench.contracts import Architecture, Representation
from graphbench.errors import BadInput
from graphbench.inference.exporting.program import (
    INPUTS,
    PROGRAM,
    Fields,
    PlainTensors,
    check_answers,
    export_program,
    program_files,
)
from graphbench.nn import EdgeEncoder, LapPEEncoder, NodeEncoder, RWSEEncoder
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.training.module import BenchmarkModule

SIZES = ([9, 2, 13, 1, 4], [17], [1], [6, 6])


def module_of(name, task="graph-regression", **options):
    torch.manual_seed(0)
    cls = registry.load("architectures", name)
    module = BenchmarkModule(tiny_spec(task, "both"), lambda spec: cls(spec, hidden_dim=16, num_layers=2, **options))
    for part in module.modules():  # default statistics would hide that those of the batch are used
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_()
    return module.eval()


def batch_of(module, sizes, seed=0):
    table = tiny_table(module.spec, sizes=sizes, seed=seed)
    table.columns.pop("contact_index", None)
    table.layout.pop("contact_index", None)
    table = encode(table, module.required_encodings())
    return table.batch(range(len(table)))


@pytest.mark.parametrize(
    ("name", "task", "options"),
    [
        ("GCN", "graph-classification", {}),
        pytest.param("GIN", "graph-multilabel", {}, marks=pytest.mark.slow),
        ("GPS", "graph-regression", {"positional_encoders": "lap and rwse", "local_layer": "GatedGCN"}),
        pytest.param("GPS", "node-classification", {}, marks=pytest.mark.slow),
        ("Graphormer", "graph-regression", {"ffn_dim": 16, "num_heads": 4}),
    ],
)
def test_a_program_answers_as_its_model_on_other_sizes(name, task, options):
    if "positional_encoders" in options:
        options = options | {"positional_encoders": [LapPEEncoder(3, 4), RWSEEncoder(4, 4)]}
    module = module_of(name, task, **options)
    program, fields = export_program(module, module.spec)
    content = io.BytesIO()
    torch.export.save(program, content)
    content.seek(0)
    run = torch.export.load(content).module()
    for number, sizes in enumerate(SIZES):
        batch = batch_of(module, sizes, seed=number)
        with torch.no_grad():
            expected = module.task.predict(module(batch), batch)[0]
        assert torch.allclose(run(fields.values(batch)), expected, atol=1e-5)


@pytest.mark.slow
def test_graphs_without_edges_are_taken():
    module = module_of("GCN")
    program, fields = export_program(module, module.spec)
    table = tiny_table(module.spec, sizes=[3, 2], edges=False)
    batch = table.batch([0, 1])
    with torch.no_grad():
        expected = module.task.predict(module(batch), batch)[0]
    assert torch.allclose(program.module()(fields.values(batch)), expected, atol=1e-5)


def test_the_graph_that_joins_a_batch_changes_no_answer():
    module = module_of("Graphormer", ffn_dim=16, num_heads=4)
    batch = batch_of(module, [4, 7, 1])
    fields = Fields({name: "pointer" if name.endswith("ptr") else "node" for name in list(batch.keys())
                     if isinstance(batch[name], torch.Tensor) and name not in ("y", "graph_id")})  # fmt: skip
    with torch.no_grad():
        found = PlainTensors(module, fields)(fields.values(batch))
        assert torch.allclose(found, module.task.predict(module(batch), batch)[0], atol=1e-6)


def test_the_files_say_what_goes_in():
    module = module_of("GIN", "graph-regression")

    class Data:
        spec = module.spec

        def target_labels(self):
            return ("first", "second")

    files = program_files(module, Data())
    assert set(files) == {PROGRAM, INPUTS}
    told = json.loads(files[INPUTS][0])
    assert told["outputs"] == ["first", "second"]
    assert told["inputs"]["x"]["values"] == ["0 .. 4", "0 .. 2"]
    assert told["inputs"]["edge_index"]["shape"] == [2, "any"]
    assert told["inputs"]["x_dense"].items() >= {
        "what": "real features of each node", "dtype": "float32", "shape": ["any", 2],
    }.items()  # fmt: skip
    example = {name: torch.tensor(each["example"]) for name, each in told["inputs"].items()}
    run = torch.export.load(io.BytesIO(files[PROGRAM][0])).module()
    torch.testing.assert_close(run(example), torch.tensor(told["example"]))
    batch = batch_of(module, [5, 3])
    assert run({name: batch[name] for name in told["inputs"]}).shape == (2, 2)


class Looping(Architecture):
    """Repeat a layer as often as values in the batch decide."""

    def __init__(self, spec, hidden_dim=8):
        super().__init__(spec, hidden_dim)
        self.encoder, self.layer = NodeEncoder(spec, hidden_dim), nn.Linear(hidden_dim, hidden_dim)

    def forward(self, batch):
        x = self.encoder(batch)
        while x.abs().sum() > 1:
            x = 0.5 * self.layer(x)
        return Representation(x)


class Sized(Architecture):
    """Scale the output by the number of nodes, except during an export."""

    def __init__(self, spec, hidden_dim=8):
        super().__init__(spec, hidden_dim)
        self.encoder, self.edges = NodeEncoder(spec, hidden_dim), EdgeEncoder(spec, hidden_dim)

    def forward(self, batch):
        x = self.encoder(batch)
        return Representation(x * float(len(batch.x.tolist())) if not torch.compiler.is_exporting() else x)


@pytest.mark.parametrize(
    ("architecture", "told"),
    [
        (Looping, "Looping cannot be exported by torch.export: "),
        (Sized, r"Sized cannot be .*answers differ from the model's"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name_and_reason(architecture, told, capsys):
    module = BenchmarkModule(tiny_spec("graph-regression", "both"), architecture)
    with pytest.raises(BadInput, match=told) as error:
        export_program(module, module.spec)
    assert "\n" not in str(error.value)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize(("mean", "deviation"), [(0, 1), (0, 1e-6), (0, 1e6), (999, 1), (1e6, 10), (-5e-3, 1e-5)])
def test_answers_are_compared_on_the_scale_of_their_targets(mean, deviation, logged):
    """An error of a hundredth of a deviation is found in any unit, and rounding is no error."""
    spec = replace(tiny_spec("graph-regression", "both"), log10_targets=(True, False) if logged else ())
    torch.manual_seed(0)
    module = BenchmarkModule(spec, lambda spec: registry.load("architectures", "GCN")(spec, hidden_dim=8)).eval()
    normal = torch.randn(99, 2, dtype=torch.float64)
    module.task.standardize(
        torch.stack((10 ** normal[:, 0] if logged else normal[:, 0], mean + deviation * normal[:, 1]), 1)
    )
    table = tiny_table(spec, sizes=[3])
    fields = Fields.of(table)
    right = PlainTensors(module, fields)
    check_answers(right, module, fields, "this test")
    for column in range(2):
        error = torch.zeros(2).double().index_fill_(0, torch.tensor(column), 0.01) * module.task.scale

        def wrong(values, column=column, error=error):
            answers = right(values)
            return (answers.double() * (1 + error)) if logged and column == 0 else answers.double() + error

        with pytest.raises(BadInput, match="GCN cannot be exported by this test: on graphs of"):
            check_answers(wrong, module, fields, "this test")


def test_tasks_that_need_more_than_graphs_are_refused():
    module = BenchmarkModule(tiny_spec("link-ranking", "both"), lambda spec: Looping(spec))
    with pytest.raises(BadInput, match="link-ranking, the task of tiny-link-ranking-both, needs more than the graphs"):
        export_program(module, module.spec)
