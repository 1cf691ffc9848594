"""Work on several processes: in order, lazily, with errors that arrive."""

import os

import pytest

from graphbench.benchmarks.processes import map_in_processes
from graphbench.errors import CorruptData, GraphbenchError


def square(number):
    return number * number, os.getpid()


def refuse(number):
    if number == 3:
        raise CorruptData("file 3 is damaged")
    return number


def die(number):
    os._exit(1)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_order(workers):
    results = list(map_in_processes(square, iter(range(20)), 20, "Squaring", workers=workers))
    assert [value for value, _ in results] == [number**2 for number in range(20)]
    assert (os.getpid() in {process for _, process in results}) == (workers == 1)


def test_jobs_are_taken_only_a_few_ahead():
    taken = []
    results = map_in_processes(square, (taken.append(n) or n for n in range(100)), 100, "Squaring", workers=2)
    next(results)
    assert len(taken) <= 5
    results.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_pass_unchanged(workers):
    with pytest.raises(CorruptData, match="file 3 is damaged"):
        list(map_in_processes(refuse, range(10), 10, "Refusing", workers=workers))


def test_a_killed_process_is_told():
    with pytest.raises(GraphbenchError, match=r"Dying: a process was ended from outside.*2 of them"):
        list(map_in_processes(die, range(4), 4, "Dying", workers=2))
