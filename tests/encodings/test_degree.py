from __future__ import annotations

import pytest

from graphbench.encodings import Degree
from graphbench.errors import BadInput

pytestmark = pytest.mark.usefixtures("ways")


@pytest.mark.parametrize("max_degree", [3, 511, 40_000])
def test_degree_equals_that_of_networkx_up_to_the_maximum(messy_graphs, messy_table, max_degree):
    columns = Degree(max_degree).compute(messy_table).columns
    for name in ("in_degree", "out_degree"):
        degrees = [getattr(graph, name) for graph in messy_graphs]
        expected = [min(degree[node], max_degree) for degree in degrees for node in range(len(degree))]
        assert columns[name].tolist() == expected


def test_degree_refuses_a_maximum_of_zero():
    with pytest.raises(BadInput, match="max_degree"):
        Degree(0)
