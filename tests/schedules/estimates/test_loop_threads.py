"""The number of threads on which a loop should run."""

import pytest
from tvm import tirx
from tvm.ir import Var
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.kernel_work import CLASSES, LoopWork
from neocpu.schedules.estimates.loop_threads import (
    MANY_THREADS,
    OF_EXTENT,
    kernel_tasks,
    parallel_loops,
    worthwhile_tasks,
)
from neocpu.schedules.tir.builder import build_kernel
from neocpu.schedules.vocabulary.target_parsing import parse_target

ZEN4 = parse_target("llvm -mcpu=znver4")
THREADS = 64


def _loop(cycles, tasks=1024, forks=1):
    """A loop nest that only computes."""
    return LoopWork(
        tasks=tasks,
        forks=forks,
        cycles=(float(cycles), *(0.0,) * (len(CLASSES) - 1)),
        size=0.0,
        from_l2=0.0,
        again=0.0,
    )


def _tasks(cycles, threads=THREADS, tasks=1024):
    (found,) = worthwhile_tasks((_loop(cycles, tasks),), (tasks,), ZEN4, threads)
    return found


def test_the_less_a_loop_does_the_fewer_threads_it_has():
    found = [_tasks(cycles) for cycles in (100, 10_000, 100_000, 10_000_000)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 1024)
    assert 1 < found[1] < found[2] <= 64


def test_a_loop_with_fewer_tasks_than_threads_keeps_them():
    assert _tasks(10_000_000, tasks=7) == 7
    assert _tasks(100, tasks=7) == 1


@pytest.mark.parametrize("threads", [1, 2, MANY_THREADS - 1])
def test_few_threads_all_run_the_loop(threads):
    assert _tasks(100, threads) == 1024


def test_loops_of_unknown_cost_keep_their_threads():
    work, serial = _loop(100), _loop(100, 1, 0)
    assert worthwhile_tasks((serial, work), (1024,), ZEN4, THREADS) == (1,)
    assert worthwhile_tasks((work,), (1024, 1024), ZEN4, THREADS) == (1024, 1024)
    assert worthwhile_tasks((work,), (0,), ZEN4, THREADS) == (0,)
    zen3 = parse_target("llvm -mcpu=znver3")  # a CPU without a known machine
    assert worthwhile_tasks((work,), (1024,), zen3, THREADS) == (1024,)


def test_tasks_of_a_kernel():
    def body(data, output):
        with T.parallel(1024) as i:
            T.buffer_store(output, data[i] * 2, [i])
        with T.parallel(7) as i:
            T.buffer_store(output, data[i] * 3, [i])

    function = build_kernel([(name, (1024,), "float32") for name in ("data", "output")], body)
    assert parallel_loops(function) == (1024, 7)
    assert kernel_tasks(function, ZEN4, 2) == (1024, 7)
    few = kernel_tasks(function, ZEN4, THREADS)
    assert few[0] < 1024
    assert few[1] < 7


def test_a_loop_over_an_extent_names_its_position():
    rows, columns = Var("rows", "int32"), Var("columns", "int32")

    def body(extents, output):
        with T.parallel(columns) as i:
            T.buffer_store(output, tirx.const(1, "float32"), [i])
        with T.parallel(columns - rows) as i:
            T.buffer_store(output, tirx.const(2, "float32"), [i])

    parameters = [("extents", (rows, columns), "uint8"), ("output", (columns,), "float32")]
    assert parallel_loops(build_kernel(parameters, body)) == (OF_EXTENT + 1, 0)
