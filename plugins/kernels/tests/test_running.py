import multiprocessing
import os
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
import torch

from graphbench_kernels import cpu_kernel, run_in_threads, running, runs_numba, runs_triton

CARD = torch.device("cuda", 0)
MANY = 1 << 30


@pytest.fixture(autouse=True)
def forget():
    def clear():
        running.runs_triton.cache_clear()
        running._numba_compiles.cache_clear()

    clear()
    yield
    clear()


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("device", "installed", "capability", "answer"),
    [
        (CARD, True, (9, 0), True),
        (CARD, True, (7, 0), True),
        (CARD, True, (6, 1), False),
        (CARD, False, (9, 0), False),
        (torch.device("cpu"), True, (9, 0), False),
    ],
)
def test_a_new_enough_card_and_triton_are_needed(device, installed, capability, answer, monkeypatch):
    monkeypatch.setattr(running, "find_spec", lambda name: object() if installed and name == "triton" else None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    put_probe(monkeypatch, lambda device: True)
    assert runs_triton(device) is answer


def put_probe(monkeypatch, launch):
    """Replace the tiny kernel by one that `launch` launches, on a GPU that is new enough."""
    module = types.ModuleType("graphbench_kernels.probe_triton")
    module.launch = launch
    monkeypatch.setitem(sys.modules, module.__name__, module)


def no_compiler(device):
    raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")


@pytest.mark.parametrize(("launch", "said"), [(no_compiler, "C compiler"), (lambda device: False, "wrong numbers")])
def test_a_kernel_that_cannot_be_launched_is_told_once_and_left_to_torch(launch, said, monkeypatch):
    """For example, a node without gcc, like many images."""
    calls = []
    monkeypatch.setattr(running, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    put_probe(monkeypatch, lambda device: calls.append(device) or launch(device))
    with pytest.warns(UserWarning, match=said) as told:
        answers = [runs_triton(CARD) for _ in range(3)]
    assert answers == [False] * 3
    assert (len(told), len(calls)) == (1, 1)


def test_the_tiny_kernel_counts_in_the_interpreter():
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA, or by `pip install triton`")
    code = "import torch; from graphbench_kernels.probe_triton import launch; print(launch(torch.device('cpu')))"
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["True"], done.stderr


def test_asking_does_not_import_triton():
    before = "triton" in sys.modules
    runs_triton(torch.device("cpu"))
    assert ("triton" in sys.modules) is before


@pytest.mark.parametrize(
    ("tensor", "answer"),
    [
        (torch.zeros(2), True),
        (torch.zeros(2, dtype=torch.float64), True),
        (torch.nn.Parameter(torch.zeros(2)), False),
        (torch.zeros(2, dtype=torch.bfloat16), False),
        (torch.zeros(2, dtype=torch.int64), False),
        (torch.zeros(2, device="meta"), False),
    ],
)
def test_numba_takes_real_numbers_on_a_processor(tensor, answer, monkeypatch):
    pytest.importorskip("numba")
    assert runs_numba(tensor) is answer
    assert runs_numba(torch.zeros(1), tensor) is answer


def test_numba_is_left_out_where_it_is_missing_or_does_not_compile(monkeypatch):
    monkeypatch.setattr(running, "find_spec", lambda name: None)
    assert not runs_numba(torch.zeros(1))
    monkeypatch.undo()
    for value, compiles in (("1", False), ("", True), ("0", True), ("false", True)):  # as Numba reads them
        running._numba_compiles.cache_clear()
        monkeypatch.setenv("NUMBA_DISABLE_JIT", value)
        assert runs_numba(torch.zeros(1)) is compiles


def test_numba_is_left_out_where_others_look_at_the_program():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    assert runs_numba(torch.zeros(1))
    with FlopCounterMode(display=False):
        assert not runs_numba(torch.zeros(1))
    with FakeTensorMode() as mode:
        fake = torch.zeros(1)
    assert mode is not None
    assert not runs_numba(fake)
    answers = []
    torch.func.grad(lambda x: answers.append(runs_numba(x)) or x.sum())(torch.zeros(1))
    assert answers == [False]


def square(first, last, x, out, power):
    for row in range(first, last):
        out[row] = x[row] ** power


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_every_item_is_computed_once(count):
    seen = []

    def kernel(first, last, x):
        seen.append((first, last, threading.current_thread()))
        x[first:last] += 1

    items = torch.zeros(count)
    run_in_threads(kernel, count, MANY, items)
    assert torch.equal(items, torch.ones(count))
    assert len({thread for *_, thread in seen}) == min(2, count)


@pytest.mark.usefixtures("two_threads")
def test_little_work_stays_in_one_thread():
    seen = []
    run_in_threads(lambda first, last, x: seen.append((first, last)), 7, 100, torch.zeros(7))
    assert seen == [(0, 7)]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("failing", [0, 5])
def test_what_a_thread_raises_reaches_the_caller(failing):
    def kernel(first, last, x):
        if first <= failing < last:
            raise ZeroDivisionError(failing)

    with pytest.raises(ZeroDivisionError):
        run_in_threads(kernel, 6, MANY, torch.zeros(6))


def _in_child(queue):
    x, out = torch.arange(6.0), torch.zeros(6)
    run_in_threads(cpu_kernel(square), 6, MANY, x, out, 2.0)
    queue.put(out.tolist())


@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    """Threads of this process, which have run, do not exist after the fork, and waiting for them would never end."""
    pytest.importorskip("numba")
    x, out = torch.arange(6.0), torch.zeros(6)
    run_in_threads(cpu_kernel(square), 6, MANY, x, out, 2.0)
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == out.tolist() == [0.0, 1.0, 4.0, 9.0, 16.0, 25.0]
    child.join()


def test_sums_keep_what_is_infinite_or_no_number():
    pytest.importorskip("numba")

    @cpu_kernel
    def add(first, last, x, sums):
        for row in range(first, last):
            for number in x[row]:
                sums[row] += number

    x = torch.ones(3, 100)
    x[0, 7], x[1, 50], x[1, 51] = np.inf, np.inf, -np.inf
    sums = torch.zeros(3)
    run_in_threads(add, 3, 1, x, sums)
    torch.testing.assert_close(sums, torch.tensor([np.inf, np.nan, 100.0]), equal_nan=True)
