"""Test the contract of architectures with a class to inherit.

The output for a graph must not depend on the order of its nodes and edges, the rest of its batch, or tracing, and the
model must train in every precision that a trainer offers. Outputs are compared in float64, so that a difference is an
error and not rounding.
"""

from __future__ import annotations

import inspect
import io
import json
import math
import operator
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any, ClassVar
from unittest import SkipTest
from unittest.mock import patch

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from graphbench.contracts import Architecture, Encoding, GraphBatch, Traced
from graphbench.contracts.encoding import add_encodings
from graphbench.contracts.pyg import GraphDataset
from graphbench.contracts.spec import TaskName
from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig, size_blocks
from graphbench.testing.budget import check_budget, counted_steps, step_work
from graphbench.testing.model_case import ModelCase, check_gradients, double_batch, loss_of, make_batch
from graphbench.testing.pretend import Work
from graphbench.testing.representations import by_graph, check_representation, check_trace, parts
from graphbench.testing.tiny import FEATURE_KINDS, encode, permute_edges, permute_nodes, tiny_spec, tiny_table
from graphbench.testing.waiting import check_reads_nothing
from graphbench.training.tasks import build_task


class ArchitectureContract(ModelCase):
    """Tests that every architecture must pass; subclass it in a test module and set `architecture`.

    A model may refuse a benchmark (`BadInput` from its constructor); unless `spec` is set, the checks run on the first
    tiny specification that it accepts.
    """

    #: Patterns of parameter names that may have no gradient, such as "layers.3.edge_norm.*".
    without_gradient: ClassVar[tuple[str, ...]] = ()
    #: Why results may depend on node order, but on no batch mates, as for draws equivariant in expectation; else "".
    random_order: ClassVar[str] = ""
    #: Why results may depend on the order in which edges are listed, such as weights that belong to edges; else "".
    numbered_edges: ClassVar[str] = ""
    #: Kernel launches of a training step on a GPU, counted on a pretended one; None for any number. Only ever lowered.
    most_launches: ClassVar[int | None] = None
    #: Times that a step waits for the GPU; models that wait explain it in `waits_for_device`. Only ever lowered.
    most_waits: ClassVar[int] = 0
    #: Why a step cannot run on Apple's GPUs, which have no float64 (see `graphbench.contracts.devices`); else "".
    not_on_apple: ClassVar[str] = ""

    # -- checks --------------------------------------------------------------------------------------------------

    def test_options_are_typed_and_have_defaults(self) -> None:
        """The command line builds the model from its signature: `spec` first, then typed options with defaults."""
        first, *options = inspect.signature(self.architecture).parameters.values()
        assert first.name == "spec", f"the first argument must be called spec, not {first.name}"
        for option in options:
            assert option.annotation is not option.empty, f"option {option.name} has no type"
            assert option.default is not option.empty, f"option {option.name} has no default"

    def test_numbers_out_of_range_are_refused_by_name(self) -> None:
        """A number that no model can have is refused with a `BadInput` that names the option, not another error."""
        spec, options = self._model().spec, inspect.signature(self.architecture).parameters
        for name, option in options.items():
            kinds = set(re.findall(r"\w+", str(option.annotation)))
            values = {"int": (-1, 0), "float": (-1.0, math.nan)}
            for value in next((values[kind] for kind in values if kind in kinds and "bool" not in kinds), ()):
                # A constructor may accept some of these numbers: 0 layers may be a model.
                try:
                    self.architecture(spec, **dict(self.options) | {name: value})
                except BadInput as error:
                    message = str(error)
                    assert name in message, f"{name}={value} is refused without its name: {message}"
                except Exception as error:
                    raise AssertionError(
                        f"{name}={value} raises no BadInput, but {type(error).__name__}: {error}"
                    ) from error

    def test_representation_has_the_promised_shapes(self) -> None:
        """`node [num_nodes, dim]` and the optional parts have their shapes, and all values are finite."""
        model = self._model()
        batch = make_batch(model, tiny_table(model.spec))
        check_representation(model(batch), batch, model.dim, model.edge_dim)

    def test_every_task_and_feature_kind_works_or_is_refused(self) -> None:
        """The constructor either refuses a specification with `BadInput`, or the model gives correct shapes."""
        taken = self.taken_specifications()
        assert any(taken.values()), "the constructor refuses every tiny specification with BadInput"

    def test_batches_of_the_loader_give_the_same(self) -> None:
        """A batch that has been through `precompute` gives the same outputs as one that has not."""
        model = self._model()
        if not model.precomputes:
            raise SkipTest("the model precomputes nothing")
        batch = make_batch(model, tiny_table(model.spec, sizes=[6, 12, 1, 9]))
        loaded = model.precomputed(batch)
        assert model.precomputed(loaded) is loaded, "what was computed is computed again"
        self._assert_same_outputs(model, loaded, batch, "a batch of the loader")

    def test_edges_can_be_predicted(self) -> None:
        """A head for edges gives a finite row for each; with symmetric targets both directions get the same row."""
        tasks: tuple[TaskName, ...] = ("edge-classification", "edge-regression")
        for task in tasks:
            undirected = (replace(tiny_spec(task, kind), extra={"edges": "undirected"}) for kind in FEATURE_KINDS)
            model = next((made for made in map(self._try_model, undirected) if made is not None), None)
            if model is None:
                raise SkipTest("the constructor refuses tasks on edges with BadInput")
            batch = make_batch(model, tiny_table(model.spec, sizes=[5, 1, 4]))
            task_of = build_task(model.spec, model.dim, HeadConfig(), edge_dim=model.edge_dim).double().eval()
            output = task_of(model(batch), batch)
            expected = (batch.edge_index.shape[1], model.spec.output_dim)
            assert tuple(output.shape) == expected, (
                f"predictions of edges are {list(output.shape)}, not {list(expected)}"
            )
            assert output.isfinite().all(), "predictions of edges are not finite"
            back = {(i, j): row for row, (i, j) in enumerate(batch.edge_index.t().tolist())}
            reverse = torch.tensor([back[j, i] for i, j in back])
            self._assert_close(output[reverse], output, "predictions of the two directions of edges")
            task_of.loss(output, batch).backward()
            check_gradients(model)

    def test_node_order_does_not_matter(self) -> None:
        """Node outputs move with the nodes; graph outputs do not change."""
        self._skip_if_random()
        if self.random_order:
            raise SkipTest(self.random_order)
        model = self._model()
        table = encode(tiny_table(model.spec), model.required_encodings())
        permuted, origin = permute_nodes(table)
        before, after = model(double_batch(table)), model(double_batch(permuted))
        self._assert_close(after.node, before.node[origin], "node outputs under another node order")
        expected, actual = by_graph(before, double_batch(table)), by_graph(after, double_batch(permuted))
        self._assert_same_by_graph(actual, expected, "node", "another node order")

    def test_edge_order_does_not_matter(self) -> None:
        """The order in which a benchmark lists the edges of a graph is not a property of the graph."""
        self._skip_if_random()
        if self.numbered_edges:
            raise SkipTest(self.numbered_edges)
        model = self._model()
        # Sizes with several shortest paths between nodes, so that a choice among equal paths would show.
        table = tiny_table(model.spec, sizes=[6, 12, 9, 1])
        moved, origin = permute_edges(table)
        batch, shuffled = make_batch(model, table), make_batch(model, moved)
        before, after = model(batch), model(shuffled)
        if before.edge is not None and after.edge is not None:
            self._assert_close(after.edge, before.edge[origin], "edge outputs under another order of edges")
        expected, actual = by_graph(before, batch), by_graph(after, shuffled)
        self._assert_same_by_graph(actual, expected, "edge", "another order of edges")

    def test_batch_mates_do_not_matter(self) -> None:
        """A graph gets the same outputs alone and in a batch with others."""
        self._skip_if_random()
        model = self._model()
        table = encode(tiny_table(model.spec), model.required_encodings())
        self._compare_with_alone(model, table)

    def test_loaders_of_pyg_give_the_same(self) -> None:
        """Graphs that are encoded one by one and batched by PyG's loader give the outputs of a `GraphBatch`."""
        spec = self._model().spec
        torch.manual_seed(0)
        model = self.make_model(spec).eval()
        table = encode(tiny_table(spec, sizes=[6, 12, 1, 9]), model.required_encodings())
        graphs = [*GraphDataset(tiny_table(spec, sizes=[6, 12, 1, 9]), spec)]
        loaded = next(iter(DataLoader([add_encodings(graph, model) for graph in graphs], batch_size=len(graphs))))
        forms = {
            "graphs of PyG's loader": loaded,
            "graphs encoded as one Batch": add_encodings(Batch.from_data_list(graphs), model),
            "graphs of dataset()": Batch.from_data_list([*GraphDataset(table, spec)]),
        }
        for what, batch in forms.items():
            self._assert_same_outputs(model, batch, table.batch(range(len(table))), what)
        self._assert_same_outputs(model, add_encodings(graphs[1], model), table.batch([1]), "a single Data")

    def test_padding_does_not_matter(self) -> None:
        """Small graphs, with edges or none, get the same outputs in a batch with one several times their size."""
        self._skip_if_random()
        model = self._model()
        table = tiny_table(model.spec, sizes=[3, 4, 24, 1, 2], edges=[False, True, True, True, False])
        table = encode(table, model.required_encodings())
        self._compare_with_alone(model, table)

    def test_blocks_do_not_matter(self) -> None:
        """Outputs and gradients agree whether a batch is padded as a whole, in blocks, or to rounded sizes."""
        self._skip_if_random()
        model = self._model()
        batch = make_batch(model, tiny_table(model.spec, sizes=[4, 21, 1]))
        weights, gradients = [weight for weight in model.parameters() if weight.requires_grad], []
        # One block for all, one per size, and sizes rounded up as on a GPU.
        for cost, exact_on in ((math.inf, {"cpu"}), (0, {"cpu"}), (math.inf, set())):
            with patch.multiple(size_blocks, BLOCK_COST=cost, EXACT_ON=exact_on):
                outputs = [*parts(model(batch)).values()]
            total = torch.stack([output.square().sum() for output in outputs]).sum()
            gradients.append([*outputs, *(torch.autograd.grad(total, weights, allow_unused=True) if weights else ())])
        for whole, cut, rounded in zip(*gradients, strict=True):
            assert len({part is None for part in (whole, cut, rounded)}) == 1, "a gradient is missing in some"
            if whole is not None and whole.numel():
                unit = whole.abs().max().clamp(min=1)  # untrained deep models have huge gradients
                self._assert_close(cut / unit, whole / unit, "outputs or gradients of a batch in blocks and as a whole")
                self._assert_close(rounded / unit, whole / unit, "outputs or gradients with rounded sizes and without")

    def test_node_steps_give_what_forward_gives(self) -> None:
        """Steps over blocks of a few nodes give the node representations of `forward` on the whole graph."""
        self._compare_by_node_steps()

    def test_smallest_graphs_work(self) -> None:
        """Graphs of one node and graphs without edges work, alone and as a whole batch, also in training mode."""
        model = self._model()
        for sizes, edges in (([1], True), ([1, 1, 1], True), ([3, 1, 4], False)):
            batch = make_batch(model, tiny_table(model.spec, sizes=sizes, edges=edges))
            for training in (False, True):
                check_representation(model.train(training)(batch), batch, model.dim, model.edge_dim)

    def test_gradients_reach_every_parameter(self) -> None:
        """A loss on all outputs gives every trainable parameter a finite gradient."""
        model = self._model().train()
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise SkipTest("there is nothing to train")
        loss_of(model(make_batch(model, tiny_table(model.spec)))).backward()
        missing = [
            name
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
            and parameter.grad is None
            and not any(fnmatch(name, pattern) for pattern in self.without_gradient)
        ]
        assert not missing, f"no gradient reaches {', '.join(missing)}; name exceptions in `without_gradient`"
        check_gradients(model)

    def test_evaluation_repeats_and_leaves_the_batch_alone(self) -> None:
        """Two passes in evaluation mode are bitwise equal, and the batch is not changed."""
        model = self._model()
        batch = make_batch(model, tiny_table(model.spec))
        original = batch.clone()
        first = model(batch)
        for key in original.keys():  # noqa: SIM118 - PyG's Data is not a mapping
            same = torch.equal if isinstance(batch[key], Tensor) else operator.eq
            assert same(batch[key], original[key]), f"forward changed batch.{key}"
        second = model(batch)
        for name, tensor in parts(first).items():
            assert torch.equal(tensor, parts(second)[name]), f"two evaluations differ in {name}"

    def test_required_encodings_can_be_computed(self) -> None:
        """Each is an `Encoding` with JSON parameters, and its fields are in the batch."""
        model = self._model()
        batch = make_batch(model, tiny_table(model.spec))
        for encoding in model.required_encodings():
            assert isinstance(encoding, Encoding), f"{encoding!r} is not an Encoding"
            json.dumps(encoding.parameters(), allow_nan=False)
            for field in encoding.layout:
                assert field in batch, f"{encoding!r} promises {field}, but the batch has none"

    def test_state_survives_saving(self) -> None:
        """Weights saved and loaded with `weights_only=True` give a fresh model the same outputs."""
        model = self._model(seed=0)
        batch = make_batch(model, tiny_table(model.spec))
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        buffer.seek(0)
        # Another seed, so that weights that were not loaded would show.
        fresh = self._model(seed=1)
        fresh.load_state_dict(torch.load(buffer, weights_only=True))
        for name, tensor in parts(model(batch)).items():
            assert torch.equal(tensor, parts(fresh(batch))[name]), f"{name} outputs differ after loading"

    def test_trains_in_32_true(self) -> None:
        """Two steps in float32, with Lightning's trainer, have finite losses, gradients and weights."""
        self._train("32-true")

    def test_trains_in_64_true(self) -> None:
        """Two steps in float64."""
        self._train("64-true")

    def test_trains_in_bf16_true(self) -> None:
        """Two steps with weights in bfloat16; features of the batch are float32."""
        self._train("bf16-true")

    def test_trains_in_bf16_mixed(self) -> None:
        """Two steps under bfloat16 autocast."""
        self._train("bf16-mixed")

    def test_trains_in_16_mixed(self) -> None:
        """Two steps under float16 autocast, if the CPU has kernels for all of the model's operations."""
        try:
            self._train("16-mixed")
        except (NotImplementedError, RuntimeError) as error:
            if "not implemented for 'Half'" not in str(error):
                raise
            raise SkipTest(f"this CPU cannot: {error}") from error

    def test_cuda_agrees_with_cpu(self) -> None:
        """The outputs on both devices are equal."""
        if not torch.cuda.is_available():
            raise SkipTest("no CUDA device")
        self._skip_if_random()
        model = self._model()
        batch = make_batch(model, tiny_table(model.spec))
        expected = parts(model(batch))
        for name, tensor in parts(model.cuda()(batch.to("cuda"))).items():
            self._assert_close(tensor.cpu(), expected[name], f"{name} outputs on CUDA and CPU")

    def test_a_step_reads_nothing_from_its_device(self) -> None:
        """A step reads no numbers from its device, only shapes, unless `waits_for_device` explains why."""
        model = self._model().train()
        if model.waits_for_device:
            raise SkipTest(model.waits_for_device)
        batch = model.precomputed(make_batch(model, tiny_table(model.spec)), torch.Generator())
        check_reads_nothing(model, batch, loss_of)

    def test_a_step_stays_within_its_budget(self) -> None:
        """A step on a pretended GPU mixes no devices, and waits and launches at most as often as the class allows."""
        counted = self._counted_step()
        assert not counted["failed"], f"a step on a pretended GPU failed:\n{counted['failed']}"
        check_budget("most_waits", self.most_waits, counted["waits"])
        if self.most_launches is not None:
            check_budget("most_launches", self.most_launches, counted["launches"])

    def test_a_step_runs_on_an_apple_gpu(self) -> None:
        """Nothing in a step needs float64, or an operation for which PyTorch has no Metal kernel."""
        if self.not_on_apple:
            raise SkipTest(self.not_on_apple)
        failed = self._counted_step()["failed_on_apple"]
        assert not failed, f"a step on a pretended Apple GPU failed:\n{failed}"

    def _counted_step(self) -> dict[str, Any]:
        cls = type(self)
        in_file = getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls
        counted = counted_steps(inspect.getfile(cls)).get(cls.__qualname__) if in_file else None
        if counted is None:
            raise SkipTest("the counting process finds only classes defined in a file, without values of fixtures")
        return counted

    def test_traces_describe_the_layers(self) -> None:
        """Traces have the shapes that `LayerTrace` documents, and recording changes no output."""
        model = self._model()
        if not any(isinstance(module, Traced) for module in model.modules()):
            raise SkipTest("the model has no layer that can be traced")
        batch = make_batch(model, tiny_table(model.spec, sizes=[4, 7, 1, 3]))
        silent = model(batch)
        with record(model) as traces:
            watched = model(batch)
        for name, tensor in parts(silent).items():
            self._assert_close(parts(watched)[name], tensor, f"{name} outputs with and without a recorder")
        assert traces, "a model with traced layers recorded nothing"
        for trace in traces:
            check_trace(trace, batch)
            assert trace.input is None or trace.input.requires_grad, f"the input in a trace of {trace.name} is detached"
        before = len(traces)
        model(batch)
        assert len(traces) == before, "a layer still records after its recorder was removed"

    # -- budgets -------------------------------------------------------------------------------------------------

    def count_step(self, count: Callable[[Architecture, GraphBatch], Work] = step_work) -> Work:
        """Count the waits and launches of a training step, in a process that runs nothing else.

        Args:
            count: counts the step of a model on a batch; by default on the pretended GPU.
        """
        model = self._model().float()
        table = encode(tiny_table(model.spec), model.required_encodings())
        return count(model, model.precomputed(table.batch(range(len(table))), torch.Generator()))


def check_architecture(architecture: type[Architecture], **options: Any) -> list[str]:
    """Run the whole contract on a class, for example in a notebook.

    Returns:
        Names of the checks that passed, without those that do not apply.

    Raises:
        AssertionError: a check failed; the message says what differs.
    """
    contract = type("Contract", (ArchitectureContract,), {"architecture": architecture, "options": options})()
    passed = []
    for name in sorted(name for name in dir(contract) if name.startswith("test_")):
        try:
            getattr(contract, name)()
        except SkipTest:
            continue
        passed.append(name)
    return passed
