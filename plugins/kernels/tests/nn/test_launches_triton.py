"""The declared launches of kernels are those of their code, run by Triton's interpreter."""

from graphbench.testing import run_with_triton

SCRIPT = """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from triton.runtime import interpreter
    from graphbench.nn import DenseLayout
    from graphbench.testing.pretend import _FREE
    from graphbench_kernels.nn import card_attention, card_messages
    from graphbench_kernels.nn.attention import Packing

    class Counted(TorchDispatchMode):
        # Kernels in Triton and operations of torch, both of which a card launches.
        def __init__(self):
            super().__init__()
            self.launched = []
            interpreter.InterpretedFunction.run = lambda kernel, *args, **kw: self.launched.append(kernel.fn.__name__)

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = func._schema.name.removeprefix("aten::")
            if not func.is_view and name not in _FREE | {"promote_types"}:
                self.launched.append(name)
            return func(*args, **(kwargs or {}))

    def launches(call, *leaves):
        with Counted() as forward:
            out = call(*leaves)
        out = [x for x in (out if isinstance(out, tuple) else (out,)) if x.requires_grad]
        above = [torch.zeros_like(x) for x in out]
        with Counted() as backward:
            torch.autograd.grad(out, leaves, above)
        return forward.launched, backward.launched

    def leaf(*shape):
        return torch.zeros(shape, requires_grad=True)

    ends = torch.tensor([[0, 1, 2], [1, 2, 0]])
    card_messages._grouped(ends, 3)  # once for all layers
    *packing, padding = DenseLayout.from_batch(torch.tensor([0, 0, 1])).packing
    rectified = lambda x, e: card_messages._SumOfRectified.apply(x, ends, e, 1.0)
    gated = lambda x, e: card_messages._GatedMessages.apply(x, ends, e)
    along_edges = lambda x, e: card_messages._EdgeAttention.apply(x, ends, e, 2, 5.0, True)
    within_graphs = lambda x: card_attention.attend_packed(x, Packing(*packing), padding, None, 2, 0.0)
    found = {
        "sum_rectified": launches(rectified, leaf(3, 4), leaf(3, 4)),
        "gated_messages": launches(gated, leaf(3, 16), leaf(3, 4)),
        "edge_attention": launches(along_edges, leaf(3, 12), leaf(3, 4)),
        "packed_attention": launches(within_graphs, leaf(3, 3 * 16)),
    }
    declared = card_messages.LAUNCHES | card_attention.LAUNCHES
    counted = {f"graphbench::{name}": tuple(map(len, launched)) for name, launched in found.items()}
    assert counted == declared, found
    print("equal")
"""


def test_launches_are_those_that_are_declared():
    assert run_with_triton(SCRIPT, interpreted=True) == "equal\n"
