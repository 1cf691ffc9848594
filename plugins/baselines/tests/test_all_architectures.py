"""The contract of architectures for every baseline, and a little more."""

from typing import ClassVar

import pytest
import torch
from half_sums import half_sums

from graphbench import GraphTable
from graphbench.nn import ESLapPEEncoder, LapPEEncoder, RWSEEncoder
from graphbench.testing import ArchitectureContract, encode, tiny_spec
from graphbench_baselines import (
    GAT,
    GCN,
    GIN,
    GINE,
    GPS,
    GRIT,
    GT,
    OGBGNN,
    PNA,
    PPGT,
    SAN,
    SAT,
    SPN,
    Exphormer,
    GatedGCN,
    GNNPlus,
    GraphMamba,
    Graphormer,
    GraphSAGE,
    NeuralWalker,
    RandomWalkPE,
    Sequoia,
    SigGateGT,
    TransformerLapPE,
)

SMALL = {"hidden_dim": 16, "num_layers": 2}


class TestGCN(ArchitectureContract):
    architecture = GCN
    options = SMALL
    most_launches = 115


class TestGraphSAGE(ArchitectureContract):
    architecture = GraphSAGE
    options = SMALL
    most_launches = 143


class TestGraphSAGEWithMean(ArchitectureContract):
    architecture = GraphSAGE
    options = SMALL | {"aggregation": "mean"}
    most_launches = 115


class TestGAT(ArchitectureContract):
    architecture = GAT
    options = SMALL
    most_launches = 181


class TestGIN(ArchitectureContract):
    architecture = GIN
    options = SMALL
    most_launches = 123


class TestGINE(ArchitectureContract):
    architecture = GINE
    options = SMALL
    most_launches = 138


class TestGatedGCN(ArchitectureContract):
    architecture = GatedGCN
    options = SMALL
    most_launches = 169


class TestGNNPlus(ArchitectureContract):
    architecture = GNNPlus
    options = SMALL | {"layer": "GCN", "edge_walks": 3}
    most_launches = 157


class TestGNNPlusForLongRanges(ArchitectureContract):
    architecture = GNNPlus
    options = SMALL | {"layer": "GINE", "version": "LRGB", "feed_forward": False, "activation": "gelu"}
    most_launches = 122


class TestOGBGNN(ArchitectureContract):
    architecture = OGBGNN
    options = SMALL | {"layer": "GCN"}
    most_launches = 145


class TestPNA(ArchitectureContract):
    architecture = PNA
    options: ClassVar = {"hidden_dim": 16, "num_layers": 2, "out_dim": 8, "num_towers": 4, "edge_features_dim": 6}
    most_launches = 318


class TestPNAWithWholeInputs(ArchitectureContract):
    architecture = PNA
    options: ClassVar = SMALL | {"out_dim": None, "num_towers": 2, "divide_input": False, "edge_features": False}
    most_launches = 309


class TestSPN(ArchitectureContract):
    architecture = SPN
    options = SMALL
    most_launches = 131


class TestGT(ArchitectureContract):
    architecture = GT
    most_launches = 284

    def make_model(self, spec):
        encoders = [LapPEEncoder(3, 3, model="raw"), RWSEEncoder(4, 2)]
        return GT(spec, **SMALL, num_heads=4, positional_encoders=encoders)


class TestGTOverAllPairs(ArchitectureContract):
    architecture = GT
    options = SMALL | {"num_heads": 4, "full": True, "bias": False, "edge_updates": False}
    most_launches = 209


class TestGPS(ArchitectureContract):
    architecture = GPS
    most_launches = 242

    def make_model(self, spec):
        return GPS(spec, **SMALL, positional_encoders=[LapPEEncoder(3, 4), RWSEEncoder(4, 2)])


class TestGPSWithGates(ArchitectureContract):
    architecture = GPS
    most_launches = 314

    def make_model(self, spec):
        return GPS(spec, **SMALL, local_layer="GatedGCN", gate_encoder=ESLapPEEncoder(3, 8))


class TestGPSWithoutLocalLayer(ArchitectureContract):
    architecture = GPS
    options = SMALL | {"local_layer": "none", "norm": "layer"}
    most_launches = 148


class TestGPSWithoutAttention(ArchitectureContract):
    architecture = GPS
    options = SMALL | {"local_layer": "GAT", "attention": "none", "categorical": "one_hot"}
    most_launches = 286


class TestGPSWithPerformer(ArchitectureContract):
    architecture = GPS
    options = SMALL | {"attention": "Performer"}
    most_launches = 299


class TestGPSWithBigBird(ArchitectureContract):
    architecture = GPS
    options = SMALL | {"attention": "BigBird"}
    random_order = "blocks are made of the nodes as they are numbered"
    most_launches = 423


class TestGPSAroundGCN(ArchitectureContract):
    architecture = GPS
    options = SMALL | {"local_layer": "GCN", "norm": "none"}
    most_launches = 206


class TestExphormer(ArchitectureContract):
    architecture = Exphormer
    options = SMALL | {"expander_degree": 2}
    random_order = "expanders are drawn from the numbers of the nodes"
    most_launches = 369


class TestGRIT(ArchitectureContract):
    architecture = GRIT
    options = SMALL | {"num_steps": 4}
    most_launches = 404


class TestPPGT(ArchitectureContract):
    architecture = PPGT
    options = SMALL | {"num_steps": 4}
    most_launches = 673


class TestSigGateGT(ArchitectureContract):
    architecture = SigGateGT
    options = SMALL
    most_launches = 306


class TestSigGateGTWithPositions(ArchitectureContract):
    architecture = SigGateGT
    options: ClassVar = SMALL | {
        "gated": False,
        "positional_encoders": [LapPEEncoder(4, 4, model="raw", skip_trivial=True), RandomWalkPE(4)],
    }
    most_launches = 295


class TestGraphMamba(ArchitectureContract):
    architecture = GraphMamba
    options = SMALL | {"num_orders": 2}
    random_order = "nodes of equal degree are read in an order that their numbers decide"
    most_launches = 502


class TestGraphMambaWithBuckets(ArchitectureContract):
    architecture = GraphMamba
    options = SMALL | {"num_orders": 2, "num_buckets": 3, "local_layer": "none"}
    random_order = "the numbers of the nodes decide on their buckets"
    most_launches = 430


WALKER = SMALL | {"walk_length": 6, "window": 3}
BY_NUMBERS = "walks are drawn from the numbers of the nodes"


class TestNeuralWalker(ArchitectureContract):
    architecture = NeuralWalker
    options = WALKER
    random_order = BY_NUMBERS
    most_launches = 786


class TestNeuralWalkerByConvolutions(ArchitectureContract):
    architecture = NeuralWalker
    options = WALKER | {"sequence_layer": "conv", "global_layer": "none", "sample_rate": 0.5, "node_output": "none"}
    random_order = BY_NUMBERS
    most_launches = 313


class TestNeuralWalkerByTransformers(ArchitectureContract):
    architecture = NeuralWalker
    options = WALKER | {"sequence_layer": "transformer", "global_layer": "transformer", "local_layer": "none"}
    random_order = BY_NUMBERS
    most_launches = 464


class TestSAN(ArchitectureContract):
    architecture = SAN
    most_launches = 448

    def make_model(self, spec):
        encoders = [TransformerLapPE(4, 8, num_layers=1, sign="flip_graph"), RWSEEncoder(4, 2)]
        return SAN(spec, **SMALL, num_heads=4, gamma=0.3, positional_encoders=encoders)


class TestSANAlongEdges(ArchitectureContract):
    architecture = SAN
    options = SMALL | {"num_heads": 4, "full": False, "norm": "layer"}
    most_launches = 222


GRAPHORMER = SMALL | {"ffn_dim": 16, "num_heads": 4}
STRUCTURED = SMALL | {"num_heads": 4, "edge_dim": 8}


class TestGraphormer(ArchitectureContract):
    architecture = Graphormer
    options = GRAPHORMER
    most_launches = 335


class TestGraphormerForFairseq(ArchitectureContract):
    architecture = Graphormer
    options = GRAPHORMER | {"version": "fairseq", "fusion": True, "checkpointing": True, "max_hops": 2}
    most_launches = 355


class TestGraphormerWithReAttention(ArchitectureContract):
    architecture = Graphormer
    options = GRAPHORMER | {"re_attention": True, "checkpointing": True, "max_hops": 0}
    most_launches = 368


class TestSAT(ArchitectureContract):
    architecture = SAT
    most_launches = 697

    def make_model(self, spec):
        encoders = [RandomWalkPE(4), LapPEEncoder(3, 3, model="raw")]
        return SAT(spec, **STRUCTURED, positional_encoders=encoders)


class TestSATOnSubgraphs(ArchitectureContract):
    architecture = SAT
    options = STRUCTURED | {"extractor": "subgraph", "norm": "layer", "fusion": True, "checkpointing": True}
    most_launches = 960


class TestSATWithReAttention(ArchitectureContract):
    architecture = SAT
    options = STRUCTURED | {"gnn": "GINE", "re_attention": True, "checkpointing": True}
    most_launches = 654


class TestSequoia(ArchitectureContract):
    """Edges with categories: clusters learn only from the penalty, which this contract's loss omits."""

    architecture = Sequoia
    without_gradient = ("before.*", "logits.*", "among.local.edge_norm.*")
    most_launches = 376

    def make_model(self, spec):
        encoders = [RandomWalkPE(4), LapPEEncoder(3, 3, model="raw")]
        return Sequoia(spec, hidden_dim=16, num_clusters=4, positional_encoders=encoders)


class TestSequoiaOfDenseEdges(ArchitectureContract):
    architecture = Sequoia
    options: ClassVar = {"hidden_dim": 16, "num_clusters": 3, "link_weight": 0.0, "norm": "layer", "dropout": 0.1}
    spec = tiny_spec("node-classification", "dense")
    without_gradient = ("before.local.edge_norm.*", "among.local.edge_norm.*")
    most_launches = 413


@pytest.mark.parametrize("gnn", ["GCN", "GIN", "GraphConv", "GraphSAGE"])
@pytest.mark.parametrize("extractor", ["subtree", "subgraph"])
def test_every_network_can_extract(gnn, extractor, spec, graphs):
    torch.manual_seed(0)
    model = SAT(spec, **STRUCTURED, gnn=gnn, extractor=extractor).double().eval()
    table = encode(GraphTable.from_graphs(graphs), model.required_encodings())
    together, alone = model(table.batch(range(len(graphs)))).node, model(table.batch([2])).node
    torch.testing.assert_close(together[6:15], alone, atol=1e-9, rtol=1e-7)


every_model = pytest.mark.parametrize("model", [GCN, GraphSAGE, GAT, GIN, GINE, GatedGCN, GT, GPS])


@every_model
def test_dropout_is_active_in_training_only(model, spec, batch):
    trained = model(spec, **SMALL, dropout=0.5)
    assert not torch.equal(trained(batch).node, trained(batch).node)
    trained.eval()
    assert torch.equal(trained(batch).node, trained(batch).node)


@every_model
def test_bfloat16_is_close_to_float32(model, spec, batch):
    torch.manual_seed(0)
    trained = model(spec, **SMALL).eval()
    exact = trained(batch).node
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = trained(batch).node.float()
    assert (rough - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize(
    "model", [GCN, GIN, GatedGCN, GT, SAN, OGBGNN, GNNPlus, SAT, Sequoia, NeuralWalker, GraphMamba]
)
def test_no_sum_over_rows_is_in_half_precision(model, spec, graphs):
    made = model(spec, hidden_dim=16).bfloat16()
    batch = encode(GraphTable.from_graphs(graphs), made.required_encodings()).batch(range(6))
    batch = made.precomputed(batch, torch.Generator().manual_seed(0)) if made.precomputes else batch
    with half_sums() as found:
        made(batch)
    assert not found


@every_model
def test_unknown_norms_are_refused(model, spec):
    with pytest.raises(ValueError, match="norm must be one of batch, layer, none, but got 'instance'"):
        model(spec, **SMALL, norm="instance")


@pytest.mark.parametrize("model", [GCN, GraphSAGE, GAT, GIN, GINE, GatedGCN])
def test_without_residual_the_input_is_not_carried(model, spec, batch):
    torch.manual_seed(0)
    carried = model(spec, hidden_dim=16, num_layers=1).eval()
    plain = model(spec, hidden_dim=16, num_layers=1, residual=False).eval()
    plain.load_state_dict(carried.state_dict())
    difference = carried(batch).node - plain(batch).node
    torch.testing.assert_close(difference, carried.node_encoder(batch), atol=1e-5, rtol=1e-5)


@pytest.mark.slow  # compiling takes about a minute when the machine is busy
def test_compiled_gps_agrees_and_takes_other_batches(spec, graphs):
    torch.manual_seed(0)
    model = GPS(spec, **SMALL, local_layer="GatedGCN").eval()
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    table = GraphTable.from_graphs(graphs)
    for batch in (table.batch(range(6)), table.batch([4, 0, 2])):
        torch.testing.assert_close(compiled(batch).node, model(batch).node, atol=1e-5, rtol=1e-5)
