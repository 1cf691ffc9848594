"""The kernel, run by Triton's interpreter if there is no GPU."""

import torch

from graphbench.testing import run_with_triton

AGREES = """
    import torch
    from graphbench.testing import computed_by
    from graphbench_sfi_former import SparseFlowAttention, blocks
    from graphbench_sfi_former.sparse_flow import water_level
    from torch_geometric.data import Batch, Data

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        from graphbench_kernels.sfi_former.water_level_triton import water_level

    # A row whose answer is known: 0.25 * 3 + 0.25 * 1 = 1.
    weight, cost = (torch.tensor([row], dtype=torch.float64, device=device) for row in ([.25, .25, .5], [0, 2, 10]))
    level, slope, settled = water_level(weight, cost, torch.zeros_like(cost[:, :1]))
    assert abs(level.item() - 3) < 1e-12 and slope.item() == 0.5 and settled.item()

    # Others are held against the equation that they solve: what flows, and what overflows, is one.
    generator = torch.Generator().manual_seed(0)
    for rows, keys in ((1, 1), (7, 3), (4, 33), (3, 600)):
        for dtype, close in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
            weight = torch.rand(2, rows, keys, generator=generator, dtype=torch.float64).pow(6)
            weight = (weight / weight.sum(-1, keepdim=True)).to(device, dtype)
            cost = torch.rand(2, rows, keys, generator=generator, dtype=torch.float64).mul(3).to(device, dtype)
            for slack in (torch.zeros_like(cost[..., :1]), torch.full_like(cost[..., :1], 0.3)):
                level, slope, settled = water_level(weight, cost, slack)
                depth = (level - cost).clamp_min(0)
                volume = (weight * depth).sum(-1, keepdim=True) + slack * level
                torch.testing.assert_close(volume, torch.ones_like(volume), rtol=close, atol=0)
                total = weight.mul(depth > 0).sum(-1, keepdim=True) + slack
                torch.testing.assert_close(slope, total, rtol=close, atol=0)
                assert settled.all()

    # A row without an answer is given up, as one that no number can state, and keeps nobody from settling.
    weight = torch.tensor([[.5, .5], [torch.nan, .5], [0., 0.]], dtype=torch.float64, device=device)
    cost = torch.tensor([[1., 2.]] * 3, dtype=torch.float64, device=device)
    assert water_level(weight, cost, torch.zeros_like(cost[:, :1]))[2].view(-1).tolist() == [True, False, False]

    # A whole layer and its gradients are those of the passes made by torch.
    torch.manual_seed(0)
    layer = SparseFlowAttention(8, 2).to(device)
    x = (torch.randn(40, 8) * 6).to(device).requires_grad_()
    ring = lambda n: torch.stack((torch.arange(n), (torch.arange(n) + 1) % n))
    batch = Batch.from_data_list([Data(num_nodes=n, edge_index=ring(n)) for n in (25, 14, 1)]).to(device)
    def both():
        out = layer(x, batch)
        return out, *torch.autograd.grad(out.square().sum(), (x, *layer.parameters()))
    with computed_by("torch"):
        without = both()
    blocks.water_level = water_level
    with computed_by("torch", "graphbench_sfi_former::attend_rows"):
        with_kernel = both()
    for ours, theirs in zip(with_kernel, without, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    print("equal")
"""


def test_levels_solve_their_equation_and_a_layer_agrees_with_torch():
    assert run_with_triton(AGREES, interpreted=not torch.cuda.is_available()) == "equal\n"
