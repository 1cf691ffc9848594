"""Every registered architecture satisfies the contract."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch

from graphbench import registry
from graphbench.contracts import Architecture, PositionalEncoder, Representation
from graphbench.errors import BadInput
from graphbench.nn import RWSEEncoder
from graphbench.testing import ArchitectureContract, tiny_batch, tiny_spec, tiny_table

#: Architectures whose results depend on the numbering of nodes, and why.
DRAWN = {
    "DeepGraph": "equivariant in expectation, see plugins/deepgraph/tests/test_model.py",
    "GraphMamba": "nodes of equal degree are read in an order that their numbers decide, as in the authors' code",
    "NeuralWalker": "walks are drawn from the numbers of the nodes; equivariant in expectation",
}

#: Architectures with weights per edge number, and the option that makes them independent of it.
NUMBERED_EDGES = {
    "LinearTransformer": "the general form has a row of weights for every edge; `form: efficient` has not"
}

#: Options without which a model is degenerate on tiny graphs.
OPTIONS = {
    "PointNetPlusPlus": {"radius": 4.0}  # points of tiny clouds are far apart: each would be alone in its ball
}

PLUGINS = Path(__file__).parents[2] / "plugins"


def test_architectures_are_registered():
    assert registry.architectures(), "install the plug-ins: pip install -e plugins/FAMILY"


def test_every_plugin_holds_its_architectures_to_the_contract():
    """Plug-ins test small models; the classes below test the defaults and any other installed plug-in."""
    checked = {
        name
        for path in PLUGINS.glob("*/tests/**/test_*.py")
        for name in re.findall(r"^    architecture = (?:\w+\.)?(\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    ours = {f"graphbench-{folder.name}" for folder in PLUGINS.iterdir()}
    records = registry.architectures().values()
    assert {record.name for record in records if record.distribution in ours} <= checked


@pytest.mark.parametrize(
    ("option", "value"), [("hidden_dim", 0), ("num_layers", 0), ("num_heads", 0), ("ffn_dim", -1), ("dropout", 1.0)]
)
def test_common_options_are_checked_in_every_model(option, value):
    """The base class checks them before a constructor runs, so no model needs its own checks."""
    for name in registry.architectures():
        model = registry.load("architectures", name)
        if option in inspect.signature(model).parameters:
            with pytest.raises(BadInput, match=f"^{option} must be .* but got {value}"):
                model(tiny_spec(), **{option: value})


def test_positional_encoders_are_part_of_every_model_that_takes_them():
    """Flip every switch: each way to encode inputs must use them. The contract checks the gradients."""
    sizes = {"hidden_dim": 20, "num_layers": 1, "num_heads": 2}
    others = {("SAT", "released"): {"extractor": "subgraph"}}
    for name in registry.architectures():
        model = registry.load("architectures", name)
        options = {option: given.default for option, given in inspect.signature(model).parameters.items()}
        switches = [option for option, default in options.items() if isinstance(default, bool)]
        for option in ["num_layers", *switches] if "positional_encoders" in options else ():
            turned = {option: not options[option]} if option in switches else {}
            chosen = {key: value for key, value in sizes.items() if key in options} | others.get((name, option), {})
            spec = tiny_spec(kind="coordinates" if option == "places_in_tokens" else "both")
            encoder = RWSEEncoder(4, 2)
            made = model(spec, **chosen, **turned, positional_encoders=[encoder])
            assert encoder in made.modules(), (name, turned)
            assert set(encoder.encodings) <= set(made.required_encodings()), (name, turned)


#: Switches of memory and speed, which do not change the output.
WITHOUT_EFFECT = {"checkpointing", "compiled_scores"}


def has_effect(model, spec, option, value):
    """Return whether an option changes the parameters or output, or is refused; False if the model is refused."""
    try:
        usual = model(spec).eval()
    except BadInput:
        return False
    try:
        other = model(spec, **{option: value}).eval()
    except BadInput:
        return True
    shapes, others = ([(key, getattr(x, "shape", None)) for key, x in m.state_dict().items()] for m in (usual, other))
    if shapes != others:
        return True
    other.load_state_dict(usual.state_dict())
    one, two = usual(tiny_batch(usual)), other(tiny_batch(other))
    pairs = [(one.node, two.node), (one.graph, two.graph)]
    return any(a is not None and (a.shape != b.shape or not torch.equal(a, b)) for a, b in pairs)


@pytest.mark.slow
def test_switches_change_a_model_or_are_refused():
    """Try nodes and graphs of several kinds; an unread option would train another model than requested."""
    tasks, kinds = ("graph-classification", "node-classification"), ("both", "categorical", "coordinates", "sequence")
    for name in registry.architectures():
        model = registry.load("architectures", name)
        for option, given in inspect.signature(model).parameters.items():
            if isinstance(given.default, bool) and option not in WITHOUT_EFFECT:
                specs = (tiny_spec(task, kind) for task in tasks for kind in kinds)
                assert any(has_effect(model, spec, option, not given.default) for spec in specs), (name, option)


#: Parts that the contract's loss does not reach: clusters of Sequoia learn from its penalty only.
WITHOUT_GRADIENT = {"Sequoia": ("before.*", "logits.*", "among.local.edge_norm.*")}


#: Architecture -> most waits and launches of a training step, see `ArchitectureContract`; only ever lowered.
BUDGETS = {
    "AdvDIFFormer": (0, 298),
    "CNDGCNN": (0, 859),
    "CNPointNet": (0, 752),
    "DFiFormer": (0, 395),
    "DGCNN": (0, 462),
    "DIFFormer": (0, 1030),
    "DeepGraph": (0, 907),
    "Exphormer": (0, 810),
    "GAT": (0, 301),
    "GCN": (0, 153),
    "GCNII": (0, 1749),
    "GIN": (0, 185),
    "GINE": (0, 208),
    "GNNPlus": (0, 748),
    "GPS": (0, 729),
    "GRIT": (0, 1572),
    "GT": (0, 474),
    "GatedGCN": (0, 273),
    "GraphMamba": (0, 928),
    "GraphSAGE": (0, 225),
    "Graphormer": (0, 919),
    "LinearTransformer": (0, 755),
    "Luna": (0, 383),
    "MEGA": (0, 1059),
    "NAGphormer": (0, 203),
    "NeuralWalker": (0, 1428),
    "NodeFormer": (0, 1140),
    "OGBGNN": (0, 259),
    "PNA": (0, 554),
    "PPGT": (0, 2403),
    "PointCNN": (0, 891),
    "PointConv": (0, 1006),
    "PointNet": (0, 355),
    "PointNetPlusPlus": (0, 667),
    "PointSequoia": (1, 1813),
    "PointTransformer": (0, 1331),
    "Polynormer": (0, 1160),
    "Positions": (0, 49),
    "S4D": (0, 621),
    "SAN": (0, 910),
    "SAT": (0, 1875),
    "SFT": (0, 1445),
    "SFiFormer": (23, 2057),
    "SGFormer": (0, 277),
    "SPN": (0, 236),
    "SequenceSequoia": (0, 657),
    "SequenceTransformer": (0, 280),
    "Sequoia": (0, 368),
    "SigGateGT": (0, 1154),
    "SetTransformer": (0, 644),
    "TunedGNN": (0, 307),
    "VNDGCNN": (0, 866),
    "VNPointNet": (0, 871),
}


class _Registered(ArchitectureContract):
    def test_every_task_and_feature_kind_works_or_is_refused(self):
        assert any(self.taken_specifications(thorough=True).values())


def _contract(name):
    """Return a contract per architecture: the process that counts steps sees classes but no fixtures."""
    waits, launches = BUDGETS.get(name, (0, None))
    facts = {
        "architecture": registry.load("architectures", name),
        "random_order": DRAWN.get(name, ""),
        "numbered_edges": NUMBERED_EDGES.get(name, ""),
        "options": OPTIONS.get(name, {}),
        "without_gradient": WITHOUT_GRADIENT.get(name, ()),
        "most_waits": waits,
        "most_launches": launches,
    }
    return pytest.mark.slow(type(f"Test{name}", (_Registered,), facts))


for _name in sorted(registry.architectures()):
    globals()[f"Test{_name}"] = _contract(_name)


def test_a_constructor_without_its_arguments_names_its_class():
    """The error is Python's own, for the class itself and for the base constructor that it calls."""

    class Mine(Architecture):
        def __init__(self, spec):
            super().__init__()

    with pytest.raises(TypeError, match=r"Mine\.__init__\(\) missing 1 required positional argument: 'spec'"):
        Mine()
    with pytest.raises(TypeError, match=r"Architecture\.__init__\(\) missing 2 required positional arguments"):
        Mine(None)


class Returns(Architecture):
    """Returns `make(nodes)` of its nodes `[num_nodes, 8]`, and assigns to its batch."""

    def __init__(self, spec, make) -> None:
        super().__init__(spec, 8)
        self.make, self.weight = make, torch.nn.Parameter(torch.ones(1))

    def forward(self, batch):
        batch.y, batch.hidden = None, torch.ones(1)
        return self.make(torch.ones(batch.num_nodes, 8))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda nodes: nodes, "Tensor"),
        (lambda nodes: (nodes, None), "tuple"),
        (lambda nodes: None, "nothing"),
        (lambda nodes: Representation(node=None), "node"),
        (lambda nodes: Representation(nodes[:, :4]), "node"),
        (lambda nodes: Representation(nodes[1:]), "node"),
        (lambda nodes: Representation(nodes[:, 0]), "node"),
        (lambda nodes: Representation(nodes.long()), "node"),
        (lambda nodes: Representation(nodes.double()), "float64"),
        (lambda nodes: Representation(nodes.to(torch.complex64)), "node"),
        (lambda nodes: Representation(nodes, graph=nodes), "graph"),
        (lambda nodes: Representation(nodes, edge=nodes), "edge"),
        (lambda nodes: Representation(nodes, tokens=nodes), "tokens_batch"),
        (lambda nodes: Representation(nodes, tokens=nodes, tokens_batch=torch.zeros(1)), "tokens"),
    ],
)
def test_what_forward_returns_is_held_against_its_promise(make, named):
    model = Returns(tiny_spec(), make)
    with pytest.raises(BadInput, match=rf"Returns\.forward.*\b{named}\b"):
        model(tiny_batch(model))


def test_a_batch_is_as_it_was_whatever_forward_assigns():
    model = Returns(tiny_spec(), Representation)
    batch = tiny_batch(model)
    before = set(batch.keys())
    model(batch)
    assert set(batch.keys()) == before
    assert batch.y is not None


def test_a_constructor_that_hands_no_specification_on_is_named():
    class NoSpec(Architecture):
        def __init__(self, hidden_dim: int = 8) -> None:
            super().__init__(None, hidden_dim)

    with pytest.raises(BadInput, match="NoSpec"):
        NoSpec(tiny_spec())


@pytest.mark.parametrize("shape", [(3,), (3, 5), (2, 4)])
def test_what_an_encoder_of_positions_returns_is_held_against_its_promise(shape):
    class Positions(PositionalEncoder):
        dim = 4

        def forward(self, batch):
            return torch.ones(shape)

    with pytest.raises(BadInput, match="Positions"):
        Positions()(tiny_table(tiny_spec(), sizes=[3]).batch([0]))
