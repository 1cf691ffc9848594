from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sft import SampledAttention, attention
from graphbench_sft.ops import EPSILON
from graphbench_sft.relative import DenseRelation, edge_relations
from graphbench_sft.sampler import LAYER, scramble

DIM, HEADS = 8, 2
SIZES = (5, 1, 9, 4, 12, 3)
ATTENTIONS = ("maxout_leaky", "maxout_relu", "softmax_dot")
EVALUATIONS = ("as_trained", "topk")


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make(num_samples=3, **options):
    torch.manual_seed(0)
    return SampledAttention(DIM, HEADS, num_samples, **options).double()


def make_layout(sizes=SIZES):
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    graph_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return DenseLayout.from_rows(graph_of, ptr, max(sizes))


def make_edges(sizes=SIZES, width=2):
    ptr = torch.tensor([0, *sizes]).cumsum(0).tolist()
    generator = torch.Generator().manual_seed(4)
    edges = [torch.randint(n, (2, 2 * n), generator=generator) + first for n, first in zip(sizes, ptr, strict=False)]
    edge_index = torch.cat(edges, dim=1)
    return edge_index, draw(edge_index.shape[1], width, seed=5)


def samples_by_hand(layer, own):
    """Return samples, partners, and the share of the samples; `test_sampler` checks the mixtures."""
    if layer.sampler.evaluation == "topk":
        importance = layer.sampler.score(own).squeeze(-1)
        chosen = importance.argsort(descending=True, stable=True)[: layer.sampler.num_samples]
        return chosen, chosen, torch.ones(len(chosen), dtype=torch.float64)
    place = torch.arange(len(own))
    sample = layer.sampler(
        own, names=scramble(scramble(place + scramble(torch.tensor(len(own)))) + layer.layer * LAYER)
    )
    return sample.index, sample.partner, sample.weight


def by_hand(layer, x, sizes, edge_index=None, features=None):
    """The layer in evaluation mode, number by number."""
    out = []
    first = 0
    for n in sizes:
        own = x[first : first + n]
        chosen, partner, share = samples_by_hand(layer, own)
        tokens = share[:, None] * own[chosen] + (1 - share[:, None]) * own[partner]
        q, k, v = layer.query_map(own), layer.key_map(tokens), layer.value_map(tokens)
        heads = []
        for h in range(HEADS):
            part = slice(h * DIM // HEADS, (h + 1) * DIM // HEADS)
            scale = (DIM // HEADS) ** 0.5
            if layer.attention == "softmax_dot":
                scores = q[:, part] @ k[:, part].t() / scale
            else:
                scores = torch.maximum(q[:, None, part], k[None, :, part]).sum(-1) / scale
            if features is not None:
                relation = torch.zeros(n, n, features.shape[1], dtype=torch.float64)
                for e, (j, i) in enumerate(edge_index.t().tolist()):
                    if first <= i < first + n:
                        relation[i - first, j - first] += features[e]
                mapped, other = (layer.relative.linear(relation[:, columns]) for columns in (chosen, partner))
                mul = share * F.softplus(mapped[..., h]) + (1 - share) * F.softplus(other[..., h])
                scores = scores * mul + share * mapped[..., HEADS + h] + (1 - share) * other[..., HEADS + h]
            if layer.attention == "softmax_dot":
                weights = scores.softmax(-1)
            else:
                total = scores.relu().sum(-1, keepdim=True) + EPSILON
                if layer.leak_map is not None:
                    total = total + F.softplus(layer.leak_map(tokens)[:, h]).sum()
                weights = scores.relu() / total
            heads.append(weights @ v[:, part])
        out.append(layer.out_map(torch.cat(heads, dim=-1)))
        first += n
    return torch.cat(out)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("num_samples", [1, 3, 50])
@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_attention_is_that_of_the_equations(name, num_samples, evaluation):
    layer = make(num_samples, attention=name, evaluation=evaluation).eval()
    layer.layer = 2
    x = draw(sum(SIZES), DIM)
    torch.testing.assert_close(layer(x, make_layout()), by_hand(layer, x, SIZES), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_attention_with_relative_terms_is_that_of_the_equations(name, evaluation):
    edge_index, features = make_edges()
    edge_index = edge_index.unique(dim=1)
    features = features[: edge_index.shape[1]]
    layer = make(attention=name, relation_dim=2, evaluation=evaluation).eval()
    x, layout = draw(sum(SIZES), DIM), make_layout()
    out = layer(x, layout, edge_relations(edge_index, features, layout))
    torch.testing.assert_close(out, by_hand(layer, x, SIZES, edge_index, features), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sampler", ["without_replacement", "straight_through", "with_replacement", "none"])
def test_every_sampler_trains(sampler):
    layer = make(sampler=sampler, relation_dim=2, score_dropout=0.2)
    layout = make_layout()
    layer(draw(sum(SIZES), DIM), layout, edge_relations(*make_edges(), layout)).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert all(parameter.grad.any() for name, parameter in layer.named_parameters() if name != "sampler.score.bias")


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("sampler", ["without_replacement", "with_replacement", "none"])
def test_a_graph_without_tokens_spoils_no_gradient(name, sampler):
    layer = make(attention=name, sampler=sampler)
    layer(draw(7, DIM), make_layout((5, 0, 2))).square().sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_without_sampler_all_tokens_are_keys():
    everything, enough = make(1, sampler="none").eval(), make(50).eval()
    enough.load_state_dict(everything.state_dict(), strict=False)
    x = draw(sum(SIZES), DIM)
    torch.testing.assert_close(everything(x, make_layout()), enough(x, make_layout()))


def test_attention_gradcheck():
    sizes = (4, 3)
    layer, layout = make(2, relation_dim=2), make_layout(sizes)
    relations = edge_relations(*make_edges(sizes), layout)

    def run(x):
        layer.sampler.generator.manual_seed(1)
        return layer(x, layout, relations)

    assert torch.autograd.gradcheck(run, draw(7, DIM).requires_grad_())


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, (9, 9, 9)], ids=["ragged", "full"])
def test_chunks_and_recomputation_change_nothing(monkeypatch, sizes, dense):
    monkeypatch.setattr(attention, "_runs_in_one_step", lambda numbers: False)
    layer, layout, x = make(relation_dim=1), make_layout(sizes), draw(sum(sizes), DIM)
    relations = edge_relations(*make_edges(sizes, 1), layout)
    if dense:
        shapes = [block.layout.mask.shape for block in layout.blocks]
        relations = [DenseRelation(draw(b, 1, n, n, seed=6)) for b, n in shapes]
    results = []
    for chunk, kept in ((1 << 30, 1 << 30), (40, 1 << 30), (17, 0), (1, 0)):
        monkeypatch.setattr(attention, "_CPU_CHUNK", chunk)
        monkeypatch.setattr(attention, "_STORED_SCORES", kept)
        layer.sampler.generator.manual_seed(2)
        layer.zero_grad()
        own = x.clone().requires_grad_()
        out = layer(own, layout, relations)
        out.square().sum().backward()
        results.append((out, own.grad, [p.grad.clone() for p in layer.parameters()]))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


def test_hidden_tokens_are_never_sampled():
    layer, layout, x = make(4, evaluation="topk"), make_layout(), draw(sum(SIZES), DIM)
    visible = torch.ones(len(x), dtype=torch.bool)
    visible[layout.ptr[2] : layout.ptr[2] + 6] = False
    changed = torch.where(visible.unsqueeze(-1), x, 100.0)
    outs = []
    for tokens in (x, changed):
        layer.sampler.generator.manual_seed(3)
        outs.append(layer(tokens, layout, visible=visible))
    torch.testing.assert_close(outs[0][visible], outs[1][visible])
    layer.eval()
    rest = x[layout.ptr[2] :][6:9]
    torch.testing.assert_close(layer(x, layout, visible=visible)[visible][6:9], layer(rest, make_layout((3,))))


class Sizes(TorchDispatchMode):
    """Record the largest and total number of elements that operations return."""

    def __init__(self):
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
                self.total += tensor.numel()
        return out


def test_work_and_memory_grow_linearly():
    layer = SampledAttention(16, 2, 8, relation_dim=2)
    measured = []
    for n in (1024, 4096, 16384):
        layout = make_layout((n,))
        relations = edge_relations(torch.randint(n, (2, 4 * n)), torch.randn(4 * n, 2), layout)
        with Sizes() as sizes:
            layer(torch.randn(n, 16), layout, relations).sum().backward()
        measured.append((sizes.largest, sizes.total))
    for smaller, larger in pairwise(measured):
        assert larger[0] <= 4.1 * smaller[0]
        assert larger[1] <= 4.4 * smaller[1]  # blocks of fixed size weigh less in small inputs


def test_a_graph_of_100_000_nodes_and_a_million_edges():
    n, num_edges, k = 100_000, 1_000_000, 8
    torch.manual_seed(0)
    layer, layout = SampledAttention(8, 2, k, relation_dim=1), make_layout((n,))
    with Sizes() as sizes:
        relations = edge_relations(torch.randint(n, (2, num_edges)), torch.ones(num_edges, 1), layout)
        out = layer(torch.randn(n, 8), layout, relations)
        out.square().mean().backward()
    assert out.isfinite().all()
    assert sizes.largest <= 2 * num_edges


def record(layer, *arguments):
    traces = []
    layer._recorder = traces.append
    out = layer(*arguments)
    layer._recorder = None
    return out, traces[0]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_trace_of_sampled_attention_explains_the_output(name):
    layer, layout, x = make(attention=name, relation_dim=2, evaluation="topk").eval(), make_layout(), draw(34, DIM)
    relations = edge_relations(*make_edges(), layout)
    out, trace = record(layer, x, layout, relations)
    assert torch.equal(layer(x, layout, relations), out)
    constant = layer.out_map(torch.zeros(DIM).double())
    through = torch.stack(  # what the bias of the values becomes, per head
        [
            layer.out_map(F.one_hot(torch.arange(DIM) // (DIM // HEADS), HEADS)[:, h] * layer.value_map.bias) - constant
            for h in range(HEADS)
        ]
    )
    for graph, (weights, columns) in enumerate(zip(trace.attention, trace.columns, strict=True)):
        n = SIZES[graph]
        assert weights.shape == (HEADS, n, min(3, n))
        assert len(columns.unique()) == min(3, n)
        rows = slice(layout.ptr[graph], layout.ptr[graph + 1])
        mixed = torch.einsum("hij,jho->io", weights, trace.values[rows][columns] + through)
        torch.testing.assert_close(mixed + constant, out[rows], rtol=1e-10, atol=1e-12)
    assert trace.num_nodes.tolist() == list(SIZES)


def test_trace_in_training_shows_the_weights_that_were_used(monkeypatch):
    layer, layout, x = make(), make_layout(), draw(sum(SIZES), DIM)
    monkeypatch.setattr(attention, "_CPU_CHUNK", 20)
    monkeypatch.setattr(attention, "_runs_in_one_step", lambda numbers: False)  # which stores no weights
    used = []
    scores_of = layer._scores
    monkeypatch.setattr(layer, "_scores", lambda piece: used.append(scores_of(piece)) or used[-1])
    record(layer, x, layout)
    half = len(used) // 2
    for at_work, recorded in zip(used[:half], used[half:], strict=True):
        assert torch.equal(at_work, recorded)


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_evaluation_asks_no_generator_and_no_batch_mate(evaluation):
    layer, x = make(evaluation=evaluation).eval(), draw(sum(SIZES), DIM)
    together = layer(x, make_layout())
    torch.manual_seed(5)
    layer.sampler.generator.manual_seed(5)
    assert torch.equal(layer(x, make_layout()), together)
    for own, expected in zip(x.split(SIZES), together.split(SIZES), strict=True):
        torch.testing.assert_close(layer(own, make_layout((len(own),))), expected, rtol=1e-12, atol=1e-12)


def test_layers_and_graphs_sample_independently():
    layer, n = make(10).eval(), 40
    x = torch.zeros(n, DIM, dtype=torch.float64)  # equal importance: only noise decides
    taken = []
    for number, size in ((0, n), (1, n), (0, n - 1)):
        layer.layer = number
        _, trace = record(layer, x[:size], make_layout((size,)))
        taken.append(set(trace.columns[0].tolist()))
    assert len({frozenset(columns) for columns in taken}) == 3


def test_plain_graphs_of_pyg_are_taken():
    edge_index, features = make_edges()
    x, ptr = draw(sum(SIZES), DIM), torch.tensor([0, *SIZES]).cumsum(0).tolist()
    inside = [(edge_index[0] >= a) & (edge_index[0] < b) for a, b in pairwise(ptr)]
    graphs = [
        Data(x=x[a:b], edge_index=edge_index[:, own] - a, edge_attr=features[own])
        for (a, b), own in zip(pairwise(ptr), inside, strict=True)
    ]
    layer, layout = make(relation_dim=2).eval(), make_layout()
    expected = layer(x, layout, edge_relations(edge_index, features, layout))
    batch = Batch.from_data_list(graphs)
    torch.testing.assert_close(
        layer(batch.x, batch, edge_relations(batch.edge_index, batch.edge_attr, batch)), expected
    )
    first = graphs[0]  # a graph that is not a batch
    alone = layer(first.x, first, edge_relations(first.edge_index, first.edge_attr, first))
    torch.testing.assert_close(alone, expected[: SIZES[0]])


def test_bad_options_of_attention_are_refused():
    for options, message in (
        ({"num_heads": 3}, "num_heads=3 and hidden_dim=8"),
        ({"num_heads": 0}, "num_heads must be an integer of at least 1, but got 0"),
        ({"num_heads": 2.0}, "num_heads must be an integer of at least 1, but got 2.0"),
        ({"num_samples": None}, "num_samples must be an integer of at least 1, but got None"),
        ({"num_samples": 2.5}, "num_samples must be an integer of at least 1, but got 2.5"),
        ({"num_samples": None, "sampler": "none"}, "num_samples must be an integer"),
        ({"dim": True}, "hidden_dim must be an integer"),
        ({"score_dropout": 1.5}, "score_dropout must be at least 0 and below 1, but got 1.5"),
        ({"evaluation": "mean"}, "evaluation must be one of as_trained, topk, but got 'mean'"),
        ({"attention": "sum"}, "attention must be one of maxout_leaky, maxout_relu, softmax_dot"),
        ({"sampler": "some"}, "sampler must be one of without_replacement"),
    ):
        with pytest.raises(BadInput, match=message):
            SampledAttention(**({"dim": DIM, "num_heads": HEADS, "num_samples": 2} | options))
    layout = make_layout()
    with pytest.raises(BadInput, match="relation_dim needs relations"):
        make(relation_dim=2)(draw(sum(SIZES), DIM), layout)
    with pytest.raises(BadInput, match="without accepts none"):
        make()(draw(sum(SIZES), DIM), layout, edge_relations(*make_edges(), layout))
