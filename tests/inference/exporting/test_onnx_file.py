"""ONNX files in onnxruntime against the models they come from, for every architecture that can be exported."""

import contextlib
import importlib.util
import inspect
import io
import json
import re
import sys
import zipfile
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from packaging.version import Version
from quick import slow
from torch import nn

from graphbench import registry
from graphbench.contracts import Architecture, Representation
from graphbench.errors import BadInput, MissingExtra
from graphbench.inference.exporting.onnx_file import FILE, export_onnx, onnx_files, session, translations
from graphbench.inference.exporting.program import INPUTS, PROGRAM, program_files
from graphbench.nn import LapPEEncoder, NodeEncoder, RWSEEncoder
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.testing.model_case import all_specs
from graphbench.training.module import BenchmarkModule

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
needs_onnx = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in PACKAGES) or Version(torch.__version__) < Version("2.13"),
    reason=f"needs the extra onnx ({', '.join(PACKAGES)}), and PyTorch 2.13: the exporter of 2.10 lacks operations",
)

SIZES = ([9, 2, 13, 1, 4], [17], [1], [6, 6])
SMALL = {"hidden_dim": 16, "num_layers": 2, "num_heads": 4, "ffn_dim": 16}

#: Architectures that `torch.export`, and so the ONNX exporter, cannot trace with dynamic sizes, and the reason.
#: The list may only get shorter: an architecture that can be exported must not be in it.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "CNDGCNN",
            "CNPointNet",
            "DGCNN",
            "PointCNN",
            "PointConv",
            "PointNet",
            "PointNetPlusPlus",
            "PointSequoia",
            "PointTransformer",
            "SetTransformer",
            "VNDGCNN",
            "VNPointNet",
        ),
        "clouds of equal size are worked on together, and how many sizes there are depends on the batch",
    ),
    "DFiFormer": "the flow's exact solver reads sizes as plain numbers",
    "DeepGraph": "its sampler draws a number of substructures that depends on the graph",
    "GraphMamba": "draws are cut into blocks by sizes that are plain numbers",
    "LinearTransformer": "the incidence matrix is as large as the largest graph",
    "MEGA": "the longest sequence is compared with the longest that it has places for",
    "NeuralWalker": "walks are drawn for the graphs as they come, by sizes that are plain numbers",
    "NodeFormer": "pairs within two steps are a product of sparse matrices",
    "SFT": "tokens are split into parts whose number depends on the batch",
    "SFiFormer": "the flow's exact solver reads sizes as plain numbers",
    "SequenceSequoia": "the longest sequence is compared with the longest that it has places for",
    "Sequoia": "the length of its sort is fixed; with a free one ONNX answers otherwise",
}

#: Architectures that only `torch.export` can export, and what ONNX lacks. It may only get shorter.
REFUSED_BY_ONNX: dict[str, str] = {"S4D": "complex numbers and their transforms"}

#: Architectures that `make test` exports; the others are exported only by `make test-slow`.
QUICK = ("GCN",)


def described(spec):
    """Return a benchmark's description as an export reads it."""
    return SimpleNamespace(
        spec=spec,
        target_labels=lambda: tuple(f"target {number}" for number in range(spec.num_targets)),
        class_labels=lambda: tuple(f"class {number}" for number in range(spec.num_classes or 0)),
    )


def with_statistics(module):
    """Return the module in evaluation mode, with random running means in its batch norms."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_()
    return module.eval()


def small(name):
    """Build a small model of an architecture on the first tiny benchmark that it accepts."""
    cls = registry.load("architectures", name)
    known = inspect.signature(cls).parameters
    options = {option: value for option, value in SMALL.items() if option in known}
    specs = [spec for spec in all_specs() if spec.kind not in ("ranking", "recovery")]
    for given, spec in product((options, {}), specs):
        torch.manual_seed(0)
        try:
            return with_statistics(BenchmarkModule(spec, lambda spec, given=given: cls(spec, **given)))
        except BadInput:
            continue
    raise AssertionError(f"{name} accepts no tiny benchmark")


def assert_same_answers(module, content, told, seed=0):
    """Check that a file, given the inputs that it names, answers as the model for all sizes."""
    run = session(content)
    for number, sizes in enumerate(SIZES):
        table = tiny_table(module.spec, sizes=sizes, seed=seed + number)
        table.columns.pop("contact_index", None)
        table.layout.pop("contact_index", None)
        table = encode(table, module.required_encodings())
        batch = table.batch(range(len(sizes)))
        with torch.no_grad():
            expected = module.task.predict(module(batch), batch)[0]
        found = run({name: batch[name] for name in told["inputs"]})
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


EXPORTED = [name for name in sorted(registry.architectures()) if name not in REFUSED.keys() | REFUSED_BY_ONNX.keys()]


@needs_onnx
@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in EXPORTED])
def test_every_architecture_answers_in_onnxruntime_as_in_pytorch(name):
    module = small(name)
    assert_same_answers(module, *export_onnx(module, described(module.spec)))


@needs_onnx
@pytest.mark.parametrize("name", [slow(name) for name in [*REFUSED, *REFUSED_BY_ONNX]])
def test_what_is_refused_is_told_in_one_line_and_cannot_be_exported(name):
    module = small(name)
    exporter = "by torch.export" if name in REFUSED else "to ONNX"
    with pytest.raises(BadInput, match=f"^{name} cannot be exported {exporter}: ") as error:
        export_onnx(module, described(module.spec))
    assert "\n" not in str(error.value)


def test_the_guide_names_what_is_refused():
    guide = (Path(__file__).parents[3] / "docs" / "export.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", guide.rpartition("## Which models can be exported")[2].partition("refused:")[2])
    assert sorted(named) == sorted([*REFUSED, *REFUSED_BY_ONNX])
    assert set(named) <= set(registry.architectures())


@needs_onnx
@pytest.mark.parametrize(
    ("task", "options"),
    [
        slow("graph-regression", {"positional_encoders": [LapPEEncoder(3, 4), RWSEEncoder(4, 4)]}),
        slow("graph-classification", {"local_layer": "GatedGCN"}),
        slow("graph-multilabel", {}),
        slow("node-classification", {}),
        slow("node-regression", {}),
    ],
)
def test_every_task_is_exported(task, options):
    torch.manual_seed(0)
    cls = registry.load("architectures", "GPS")
    module = with_statistics(
        BenchmarkModule(tiny_spec(task, "both"), lambda spec: cls(spec, hidden_dim=16, num_layers=2, **options))
    )
    assert_same_answers(module, *export_onnx(module, described(module.spec)))


@needs_onnx
def test_the_file_says_what_it_is_and_what_goes_in():
    import onnx
    import onnxruntime

    module = small("GIN")
    files = onnx_files(module, described(module.spec))
    assert set(files) == {FILE, INPUTS}
    told, model = json.loads(files[INPUTS][0]), onnx.load_model_from_string(files[FILE][0])
    onnx.checker.check_model(model, full_check=True)
    running = onnxruntime.InferenceSession(files[FILE][0], providers=["CPUExecutionProvider"])
    assert [each.name for each in running.get_inputs()] == list(told["inputs"])
    sizes = {each.name: each.shape for each in running.get_inputs()}
    assert sizes["x"] == ["nodes", 2]
    assert sizes["edge_index"] == [2, "edges"]
    assert sizes["ptr"] == ["graphs_and_one"]
    (answer,) = running.get_outputs()
    assert (answer.name, answer.shape) == ("predictions", ["graphs", 2])
    about = {each.key: each.value for each in model.metadata_props}
    assert about["architecture"] == "GIN"
    assert json.loads(about["outputs"]) == told["outputs"] == ["target 0", "target 1"]
    assert json.loads(about["inputs"]) == {name: each["what"] for name, each in told["inputs"].items()}
    example = {name: torch.tensor(each["example"]).numpy() for name, each in told["inputs"].items()}
    torch.testing.assert_close(torch.from_numpy(running.run(None, example)[0]), torch.tensor(told["example"]))


@needs_onnx
def test_no_place_of_this_machine_is_in_a_file():
    module = small("GCN")
    content = onnx_files(module, described(module.spec))[FILE][0]
    with zipfile.ZipFile(io.BytesIO(program_files(module, described(module.spec))[PROGRAM][0])) as archive:
        parts = [archive.read(name) for name in archive.namelist()]
    place = inspect.getfile(BenchmarkModule).rpartition("graphbench")[0].encode()
    for part in (content, *parts):
        assert place not in part
        assert b".py" not in part


class Operations(nn.Module):
    """The operations that graphbench translates itself, on dynamic sizes."""

    def forward(self, repeats, numbers):
        size = repeats.shape[0]
        return (
            torch.repeat_interleave(repeats, output_size=numbers.shape[0]),
            numbers % size,
            numbers % 3,
            numbers.float() % 2.5,
            numbers.float() % size,
            *(numbers % 3).sort(stable=True),
            *(numbers % 3).float()[None].sort(dim=1, descending=True, stable=True),
        )


@needs_onnx
def test_own_translations_are_what_pytorch_computes():
    def inputs(*repeats):
        given = torch.tensor(repeats, dtype=torch.int64)
        return given, torch.arange(int(given.sum())) * 7 - 20

    free = {"repeats": {0: torch.export.Dim.DYNAMIC}, "numbers": {0: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(Operations(), inputs(2, 0, 3, 1), dynamic_shapes=free)
    with contextlib.redirect_stdout(io.StringIO()):
        made = torch.onnx.export(program, dynamo=True, custom_translation_table=translations(), optimize=False)
    import onnxruntime

    running = onnxruntime.InferenceSession(made.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [each.name for each in running.get_inputs()]
    for repeats in ([2, 0, 3, 1], [1, 1], [0, 0, 5, 0, 0, 2, 0], [0, 4], [9, 8, 7, 6, 5, 4]):
        given = inputs(*repeats)
        found = running.run(None, {name: value.numpy() for name, value in zip(names, given, strict=True)})
        for mine, expected in zip(found, Operations()(*given), strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), expected)


class Oscillating(Architecture):
    """Use an operation that ONNX lacks."""

    def __init__(self, spec, hidden_dim=8):
        super().__init__(spec, hidden_dim)
        self.encoder = NodeEncoder(spec, hidden_dim)

    def forward(self, batch):
        return Representation(torch.special.bessel_j0(self.encoder(batch)))


@needs_onnx
def test_an_operation_that_onnx_has_not_is_named_in_one_line():
    module = BenchmarkModule(tiny_spec("graph-regression", "both"), Oscillating)
    with pytest.raises(BadInput, match=r"^Oscillating cannot be exported to ONNX: .*bessel_j0") as error:
        export_onnx(module, described(module.spec))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_without_a_package_the_line_that_installs_it_is_said(package, monkeypatch):
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None if name == package else SimpleNamespace())
    module = small("GCN")
    with pytest.raises(MissingExtra, match=rf"'{package}'.*pip install 'graphbench-lightning\[onnx\]'"):
        export_onnx(module, described(module.spec))
