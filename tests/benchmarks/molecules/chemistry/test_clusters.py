"""Clusters and diverse picks: against RDKit's clustering and against the definitions, pair by pair."""

import random

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.ML.Cluster import Butina

from graphbench.benchmarks.molecules.chemistry import clusters
from graphbench.benchmarks.molecules.chemistry.clusters import (
    butina_clusters,
    leader_clusters,
    maxmin_picks,
    morgan_bits,
    nearest_distances,
)
from graphbench.errors import BadInput


def molecules(count=120, seed=0):
    """Return SMILES of chains with rings and groups in random order."""
    draw = random.Random(seed)
    parts = ["C", "CC", "CO", "CN", "C(=O)O", "c1ccccc1", "C1CCNCC1", "c1ccncc1", "S(=O)(=O)N", "C(F)(F)F", "CCl"]
    texts = {"".join(draw.choices(parts[:6], k=draw.randint(1, 4))) + draw.choice(parts) for _ in range(count)}
    return [text for text in sorted(texts) if Chem.MolFromSmiles(text)]


@pytest.fixture(scope="module")
def bits():
    return morgan_bits(molecules())


@pytest.fixture(scope="module")
def distances(bits):
    """Return the Tanimoto distances of all pairs, by Python's sets."""
    on = [set(one.GetOnBits()) for one in bits]
    return np.array([[1 - len(a & b) / len(a | b) for b in on] for a in on])


def members(numbers):
    return [np.flatnonzero(numbers == number) for number in range(numbers.max() + 1)]


@pytest.mark.parametrize("distance", [0.2, 0.4, 0.65, 0.9])
def test_butina_is_that_of_rdkit(bits, distances, distance):
    pairs = distances[np.tril_indices(len(bits), -1)].tolist()
    expected = Butina.ClusterData(pairs, len(bits), distance, isDistData=True)
    assert {frozenset(one.tolist()) for one in members(butina_clusters(bits, distance))} == set(
        map(frozenset, expected)
    )


@pytest.mark.parametrize("distance", [0.4, 0.65])
def test_members_are_near_a_centroid_that_had_most_neighbours(bits, distances, distance):
    near, free = distances <= distance, np.ones(len(bits), dtype=bool)
    for cluster in members(butina_clusters(bits, distance)):
        centroids = [row for row in cluster if near[row, cluster].all()]
        assert centroids, "all members are within the distance of one of them"
        most = near.sum(1)[free].max()
        assert most in near.sum(1)[centroids], "no free molecule has more neighbours"
        row = max(row for row in centroids if near.sum(1)[row] == most)
        assert set(np.flatnonzero(near[row] & free)) == set(cluster), "it takes all free neighbours"
        free[cluster] = False
    assert not free.any()


@pytest.mark.parametrize("distance", [0.3, 0.65, 0.8])
def test_leaders_are_apart_and_every_molecule_is_with_the_nearest(bits, distances, distance):
    leaders = []
    for row in range(len(bits)):
        if all(distances[row, leader] > distance for leader in leaders):
            leaders.append(row)
    numbers = leader_clusters(bits, distance)
    assert numbers.max() + 1 == len(leaders)
    assert (distances[leaders][:, leaders] + np.eye(len(leaders)) > distance).all()
    own = distances[np.arange(len(bits)), np.array(leaders)[numbers]]
    assert np.allclose(own, distances[:, leaders].min(1))
    assert (own <= distance).all()


@pytest.mark.parametrize("first", [0, 17])
def test_each_pick_is_as_far_as_possible_from_those_before_it(bits, distances, first):
    picks = maxmin_picks(bits, 25, first)
    assert picks[0] == first
    assert len(set(picks)) == 25
    for count in range(1, 25):
        nearest = distances[:, picks[:count]].min(1)
        nearest[picks[:count]] = -1
        assert nearest[picks[count]] == pytest.approx(nearest.max())


def test_distance_to_the_nearest_of_others(bits, distances):
    assert np.allclose(nearest_distances(bits[:30], bits[30:]), distances[:30, 30:].min(1))


def test_molecules_are_compared_some_at_a_time(bits, distances, monkeypatch):
    whole = butina_clusters(bits, 0.65), leader_clusters(bits, 0.65), nearest_distances(bits[:50], bits)
    for name, size in {"_ROWS": 24, "_COLUMNS": 16, "_TILE": 10}.items():
        monkeypatch.setattr(clusters, name, size)
    tiles = list(clusters._compare(bits, bits))
    assert max(similarity.size for *_, similarity in tiles) == 10 * 16
    found = np.full(distances.shape, np.nan)
    for rows, columns, similarity in tiles:
        found[rows, columns] = 1 - similarity
    assert np.array_equal(found, 1 - np.array([DataStructs.BulkTanimotoSimilarity(one, bits) for one in bits]))
    pieces = butina_clusters(bits, 0.65), leader_clusters(bits, 0.65), nearest_distances(bits[:50], bits)
    assert all(map(np.array_equal, whole, pieces))


def test_long_picks_are_announced(bits, monkeypatch, caplog):
    caplog.set_level("INFO")
    leader_clusters(bits, 0.5)
    assert not caplog.messages
    monkeypatch.setattr(clusters, "_LONG", len(bits))
    leader_clusters(bits, 0.5)
    maxmin_picks(bits, 3, 0)
    assert [text.split(",")[0] for text in caplog.messages] == [
        f"Picking {picked} among {len(bits)} molecules" for picked in ("leaders", "diverse molecules")
    ]


def test_one_molecule_in_two_spellings_is_at_distance_0():
    first, second = morgan_bits(["OC(C)c1ccccc1", "c1ccccc1[C@H](O)C"])
    assert DataStructs.TanimotoSimilarity(first, second) == 1
    for find in (butina_clusters, leader_clusters):
        assert len(set(find([first, *morgan_bits(["CCCC", "O"]), second], 0.1).tolist())) == 3


def test_too_many_molecules_are_sent_to_leaders(bits, monkeypatch):
    monkeypatch.setattr(clusters, "MOST_OF_BUTINA", len(bits) - 1)
    with pytest.raises(BadInput, match="split=leader"):
        butina_clusters(bits, 0.5)
