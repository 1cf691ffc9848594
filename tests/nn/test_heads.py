import pytest
import torch
import torch.nn.functional as F

from graphbench import Representation
from graphbench.errors import BadInput
from graphbench.nn import DotProductHead, HeadConfig, MLPHead, Pooling
from graphbench.nn.heads import GraphHead, NodeHead


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("config", "dim", "output_dim", "parameters"),
    [
        (HeadConfig(3, "halving"), 64, 1, 2625),  # GPS on ZINC
        (HeadConfig(3, "halving"), 304, 1, 58065),  # GPS small on PCQM4Mv2
        (HeadConfig(3, "halving"), 384, 1, 92545),  # GPS medium on PCQM4Mv2
        (HeadConfig(3), 64, 1, 8385),  # PATTERN
        (HeadConfig(3), 48, 6, 4998),  # CLUSTER
        (HeadConfig(2), 52, 10, 3286),  # CIFAR10
        (HeadConfig(1), 96, 10, 970),  # Peptides-func
        (HeadConfig(3), 96, 81, 26481),  # COCO-SP
        (HeadConfig(2, "output"), 128, 1, 131),  # GT
    ],
)
def test_head_parameter_counts(config, dim, output_dim, parameters):
    head = config.mlp(dim, output_dim)
    assert count(head) == parameters
    assert head(torch.randn(5, dim)).shape == (5, output_dim)


def test_hidden_layers_are_relu_and_the_last_is_plain():
    torch.manual_seed(0)
    head, x = MLPHead(6, 2, 3), torch.randn(9, 6)
    first, second, last = head.layers
    torch.testing.assert_close(head(x), last(F.relu(second(F.relu(first(x))))))


def test_hidden_layers_take_gelu():
    head, x = HeadConfig(2, activation="gelu").mlp(6, 2), torch.randn(9, 6)
    torch.testing.assert_close(head(x), head.layers[1](F.gelu(head.layers[0](x))))
    with pytest.raises(BadInput, match="activation"):
        HeadConfig(2, activation="tanh").mlp(6, 2)


def test_l2_normalisation_scales_hidden_rows_to_length_one():
    torch.manual_seed(0)
    head, x = MLPHead(6, 2, 2, l2_normalize=True), torch.randn(9, 6)
    hidden = F.relu(head.layers[0](x))
    assert hidden.norm(dim=1).std() > 0
    torch.testing.assert_close(head(x), head.layers[1](hidden / hidden.norm(dim=1, keepdim=True)))


def test_a_hidden_row_of_zeros_stays_zero():
    head = MLPHead(3, 1, 2, l2_normalize=True)
    torch.nn.init.constant_(head.layers[0].bias, -100.0)
    assert torch.equal(head(torch.zeros(2, 3)), head.layers[1].bias.expand(2, -1))


def test_head_dropout_acts_on_hidden_rows_in_training_only():
    torch.manual_seed(0)
    head, x = MLPHead(64, 1, 2, dropout=0.5), torch.randn(3, 64)
    assert not torch.equal(head(x), head(x))
    head.eval()
    assert torch.equal(head(x), head(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "num_layers of a head must be an integer of at least 1"),
        ({"width": "double"}, "width of a head must be one of constant, halving, output, but got 'double'"),
        ({"num_layers": 5, "width": "halving"}, "A head of 5 layers halves a width of 8"),
    ],
)
def test_impossible_heads_are_errors(options, message):
    with pytest.raises(BadInput, match=message):
        MLPHead(8, 1, **options)


@pytest.mark.parametrize(("name", "reduce"), [("mean", torch.mean), ("add", torch.sum), ("max", torch.amax)])
def test_pooling_agrees_with_a_loop(batch, name, reduce):
    node = torch.randn(batch.num_nodes, 4)
    expected = [reduce(node[batch.batch == graph], dim=0) for graph in range(batch.num_graphs)]
    torch.testing.assert_close(Pooling(name)(node, batch.batch, batch.num_graphs), torch.stack(expected))


def test_unknown_pooling_is_an_error():
    with pytest.raises(BadInput, match="mean, add, max, but got 'sum'"):
        Pooling("sum")


def test_dot_product_of_mapped_ends():
    torch.manual_seed(0)
    head, node = DotProductHead(96), torch.randn(5, 96)
    pairs = torch.tensor([[0, 3, 2], [1, 3, 4]])
    end = head.mlp.layers[0](node)
    torch.testing.assert_close(head(node, pairs), (end @ end.t())[pairs[0], pairs[1]], atol=1e-4, rtol=1e-4)
    assert count(head) == 9312  # GPS on PCQM-Contact


def test_graphs_are_pooled_unless_the_architecture_has_a_representation_of_them(batch):
    head, node = GraphHead(4, 3, HeadConfig(pooling="add")), torch.randn(batch.num_nodes, 4)
    pooled = torch.stack([node[batch.batch == graph].sum(0) for graph in range(batch.num_graphs)])
    torch.testing.assert_close(head(Representation(node=node), batch), head.mlp(pooled))
    assert torch.equal(head(Representation(node=node, graph=pooled + 1), batch), head.mlp(pooled + 1))


def test_nodes_are_predicted_one_by_one(batch):
    head, node = NodeHead(4, 3, HeadConfig()), torch.randn(batch.num_nodes, 4)
    torch.testing.assert_close(head(Representation(node=node), batch)[:2], head.mlp(node[:2]))
