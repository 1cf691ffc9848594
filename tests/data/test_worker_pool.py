"""Work in several processes: results in order, jobs taken lazily, and errors that reach the caller."""

import multiprocessing
import os
from functools import partial

import numpy as np  # loaded before processes are forked, so that its threads are counted
import pytest
from threadpoolctl import threadpool_info

from graphbench.data.worker_pool import map_in_processes, ordered_map
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


_loaded = []


def load(number):
    _loaded.append(number)


def loaded(_):
    return list(_loaded)


def test_initializer_runs_in_every_process_and_not_here():
    assert list(ordered_map(loaded, range(6), 2, "Loading", partial(load, 7))) == [[7]] * 6
    assert _loaded == []


def threads(_):
    assert np.ones(1).sum() == 1
    return max((library["num_threads"] for library in threadpool_info()), default=1)


def test_processes_use_one_thread():
    assert set(ordered_map(threads, range(4), 2, "Counting")) == {1}


def test_a_closed_reader_ends_the_processes():
    results = ordered_map(square, range(1000), 2, "Squaring")
    next(results)
    children = multiprocessing.active_children()
    assert len(children) == 2
    results.close()
    assert not any(child.is_alive() for child in children)
