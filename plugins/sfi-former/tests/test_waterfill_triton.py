"""The kernel, run by Triton's interpreter where there is no graphics card, and compiled for cards of today."""

import torch

from graphbench.testing import run_with_triton

AGREES = """
    import torch
    from graphbench_sfi_former import SparseFlowAttention, waterfill
    from graphbench_sfi_former.waterfill import Vessels, water_level
    from torch_geometric.data import Batch, Data

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        waterfill.runs_triton = lambda device: True
    assert waterfill.runs_triton(torch.device(device))

    def solve(weight, cost, slack, guess):
        flow = torch.full_like(weight, torch.nan)
        start = torch.full_like(cost[..., :1], guess)
        return water_level(Vessels(weight, cost, slack), start, torch.empty_like(flow), flow, steepest=torch.inf), flow

    # A row whose answer is known: 0.25 * 3 + 0.25 * 1 = 1.
    for guess in (1e-6, 1.0, 1e9):
        weight, cost = (torch.tensor([row], dtype=torch.float64, device=device) for row in ([.25, .25, .5], [0, 2, 10]))
        level, flow = solve(weight, cost, None, guess)
        assert abs(level.level.item() - 3) < 1e-12 and level.slope.item() == 0.5 and level.settled.item()
        assert flow.sub(torch.tensor([[.75, .25, 0.]], dtype=torch.float64, device=device)).abs().max() < 1e-12

    # Others are held against the equation that they solve: what flows, and what overflows, is one.
    generator = torch.Generator().manual_seed(0)
    for rows, keys in ((1, 1), (7, 3), (4, 33), (3, 600)):
        for dtype, close in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
            weight = torch.rand(2, rows, keys, generator=generator, dtype=torch.float64).pow(6)
            weight = (weight / weight.sum(-1, keepdim=True)).to(device, dtype)
            cost = torch.rand(2, rows, keys, generator=generator, dtype=torch.float64).mul(3).to(device, dtype)
            for slack in (None, torch.full((2, rows, 1), 0.3, dtype=dtype, device=device)):
                level, flow = solve(weight, cost, slack, 1.0)
                depth = (level.level - cost).clamp_min(0)
                torch.testing.assert_close(flow, weight * depth, rtol=close, atol=0)
                over = 0 if slack is None else slack * level.level
                torch.testing.assert_close(level.volume + over, torch.ones_like(level.volume), rtol=close, atol=0)
                torch.testing.assert_close(level.volume, flow.sum(-1, keepdim=True), rtol=close, atol=0)
                slope = weight.mul(depth > 0).sum(-1, keepdim=True) + (0 if slack is None else slack)
                torch.testing.assert_close(level.slope, slope, rtol=close, atol=0)
                assert level.settled.all()

    # A row without an answer is given up, as one that no number can state, and keeps nobody from settling.
    weight = torch.tensor([[.5, .5], [torch.nan, .5], [0., 0.]], dtype=torch.float64, device=device)
    level, _ = solve(weight, torch.tensor([[1., 2.]] * 3, dtype=torch.float64, device=device), None, 1.0)
    assert level.settled.view(-1).tolist() == [True, False, False]

    # A whole layer and its gradients are those of the passes made by torch.
    torch.manual_seed(0)
    layer = SparseFlowAttention(8, 2).to(device)
    x = (torch.randn(40, 8) * 6).to(device).requires_grad_()
    ring = lambda n: torch.stack((torch.arange(n), (torch.arange(n) + 1) % n))
    batch = Batch.from_data_list([Data(num_nodes=n, edge_index=ring(n)) for n in (25, 14, 1)]).to(device)
    def both():
        out = layer(x, batch)
        return out, *torch.autograd.grad(out.square().sum(), (x, *layer.parameters()))
    with_kernel = both()
    waterfill.runs_triton = lambda device: False
    for ours, theirs in zip(with_kernel, both(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    print("equal")
"""

COMPILES = """
    import triton
    from graphbench_sfi_former.waterfill_triton import _fill
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    numbers = {"tolerance": "fp32", "steepest": "fp32"} | dict.fromkeys(("num_keys", "unchecked", "passes"), "i32")
    for number in ("*fp32", "*fp64"):
        for options in ({"HAS_SLACK": True, "BLOCK": 1024}, {"HAS_SLACK": False, "BLOCK": 16}):
            signature = {name: numbers.get(name, number) for name in _fill.arg_names}
            signature |= {"settled": "*u8"} | dict.fromkeys(options, "constexpr")
            for capability in (80, 90):
                target = GPUTarget("cuda", capability, 32)
                made = triton.compile(ASTSource(fn=_fill, signature=signature, constexprs=options), target=target)
                assert made.asm["cubin"]
    print("compiled")
"""


def test_levels_solve_their_equation_and_a_layer_agrees_with_torch():
    assert run_with_triton(AGREES, interpreted=not torch.cuda.is_available()) == "equal\n"


def test_the_kernel_compiles_for_cards_of_today():
    assert run_with_triton(COMPILES, interpreted=False) == "compiled\n"
