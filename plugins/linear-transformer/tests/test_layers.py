import pytest
import torch

from graphbench.errors import BadInput
from graphbench_linear_transformer import BlockLayer, DenseIncidence, EfficientLayer, GeneralLayer, MolecularLayer


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def randomised(layer):
    """Return the layer in float64 with random weights of moderate size, none of them 0 or 1."""
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return layer


@pytest.mark.parametrize("num_nodes", [4, 30], ids=["n < h", "n > h"])
def test_general_layer_is_equation_3(num_nodes):
    layer, z = randomised(GeneralLayer(9)), draw(2, 9, num_nodes)
    v, q, k, r = layer.value, layer.query, layer.key, layer.residual
    expected = torch.stack([one + v @ one @ one.T @ q.T @ k @ one + r @ one for one in z])
    torch.testing.assert_close(layer(z.mT).mT, expected, atol=1e-11, rtol=1e-11)


def test_block_layer_is_the_general_layer_with_multiples_of_the_identity():
    block, general, x = randomised(BlockLayer(3)), GeneralLayer(12).double(), draw(2, 5, 12)
    for name, weight in block.named_parameters():
        getattr(general, name).data = torch.kron(weight.data, torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(block(x), general(x))


@pytest.mark.parametrize("evolve", [True, False])
def test_efficient_layer_is_equation_7(evolve):
    layer, b, phi = randomised(EfficientLayer(6, evolve)), draw(5, 8), draw(5, 6)
    alpha_value = layer.alpha_value if evolve else 0.0
    s = layer.alpha_query * layer.alpha_key * b @ b.T + phi @ layer.query.T @ layer.key @ phi.T
    expected_b = ((1 + layer.alpha_residual) * b.T + alpha_value * b.T @ s).T
    expected_phi = ((torch.eye(6) + layer.residual) @ phi.T + layer.value @ phi.T @ s).T
    incidence, features = layer(DenseIncidence(b), phi)
    torch.testing.assert_close(incidence.matrix, expected_b)
    torch.testing.assert_close(features, expected_phi)


@pytest.mark.parametrize("evolve", [True, False])
def test_efficient_layer_is_a_general_layer(evolve):
    layer, b, phi = randomised(EfficientLayer(6, evolve)), draw(2, 5, 8), draw(2, 5, 6)
    incidence, features = layer(DenseIncidence(b), phi)
    whole = layer.as_general(8)(torch.cat([b, phi], dim=-1))
    torch.testing.assert_close(whole, torch.cat([incidence.matrix, features], dim=-1))


def test_molecular_layer_is_equation_16():
    layer, b, phi = randomised(MolecularLayer(4)), draw(5, 8), draw(5, 4)
    root = torch.diag(b.abs().sum(1) ** -0.5)
    similar = layer.alpha * root @ b @ b.T @ root
    among = phi @ torch.diag(layer.query) @ torch.diag(layer.key) @ phi.T
    s_b = layer.beta[0] * similar + layer.beta[1] * among
    s_phi = layer.beta[2] * similar + layer.beta[3] * among
    expected_b = ((1 + layer.alpha_residual) * b.T + layer.alpha_value * b.T @ s_b).T
    expected_phi = ((1 + layer.residual) * phi.T + torch.diag(layer.value) @ phi.T @ s_phi).T
    incidence, features = layer(DenseIncidence(b), phi)
    torch.testing.assert_close(incidence.matrix, expected_b)
    torch.testing.assert_close(features, expected_phi)


def test_released_molecular_layer_scales_before_and_after_attention():
    layer, b, phi = randomised(MolecularLayer(4, released=True)), draw(5, 8), draw(5, 4)
    plain = MolecularLayer(4).double()
    plain.load_state_dict(layer.state_dict(), strict=False)
    (edge_in, edge_out), (node_in, node_out) = layer.edge_factors[[1, 3]], layer.node_factors[[1, 3]]
    with torch.no_grad():
        plain.alpha *= edge_in**2
        plain.alpha_value *= edge_in * edge_out
        plain.query *= node_in
        plain.key *= node_in
        plain.value *= node_in * node_out
    for ours, theirs in zip(layer(DenseIncidence(b), phi), plain(DenseIncidence(b), phi), strict=True):
        ours, theirs = (getattr(value, "matrix", value) for value in (ours, theirs))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("layer", "parameters"),
    [
        (GeneralLayer(9), 4 * 81),
        (BlockLayer(3), 36),
        (EfficientLayer(6), 4 * 36 + 4),
        (EfficientLayer(6, evolve_incidence=False), 4 * 36 + 3),
        (MolecularLayer(8), 32),
        (MolecularLayer(8, released=True), 48),
    ],
    ids=lambda value: value if isinstance(value, int) else type(value).__name__,
)
def test_parameters_are_counted(layer, parameters):
    assert sum(parameter.numel() for parameter in layer.parameters()) == parameters


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [EfficientLayer, MolecularLayer])
def test_gradients_are_those_of_finite_differences(kind, dtype):
    layer = randomised(kind(4)).to(dtype)
    b, phi = draw(3, 5, 6).to(dtype).requires_grad_(), draw(3, 5, 4).to(dtype).requires_grad_()

    def run(b, phi):
        incidence, features = layer(DenseIncidence(b), phi)
        return incidence.matrix, features

    if dtype == torch.float64:
        assert torch.autograd.gradcheck(run, (b, phi))
    sum(out.square().sum() for out in run(b, phi)).backward()
    for name, tensor in (("b", b), ("phi", phi), *layer.named_parameters()):
        assert tensor.grad is not None, name
        assert tensor.grad.dtype == dtype
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().max() > 0, name


def test_gradients_flow_through_the_general_layer():
    layer, x = randomised(GeneralLayer(4)), draw(2, 6, 4).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,))
    layer(x).square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in layer.parameters())


def test_fresh_molecular_layer_changes_nothing():
    b, phi = draw(5, 8), draw(5, 4)
    incidence, features = MolecularLayer(4).double()(DenseIncidence(b), phi)
    assert torch.equal(incidence.matrix, b)
    assert torch.equal(features, phi)


def test_released_layer_needs_four_features():
    with pytest.raises(BadInput, match="num_features=3"):
        MolecularLayer(3, released=True)
