"""Many threads on one module, for seconds."""

from __future__ import annotations

import gc
import os
import threading

import numpy as np

from neocpu.runtime.module import load
from neocpu.runtime.thread_pool import ThreadPool

CALLERS, CALLS = 32, 100


def resident() -> int:
    """Bytes of this process in memory."""
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hammer(work) -> list[str]:
    """Do ``work(i)`` repeatedly in `CALLERS` threads; return the errors."""
    wrong: list[str] = []

    def loop(i):
        affinity = os.sched_getaffinity(0)
        try:
            for call in range(CALLS):
                work(i + call)
        except BaseException as error:
            wrong.append(repr(error))
        if os.sched_getaffinity(0) != affinity:
            wrong.append("the caller's affinity changed")

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_thousands_of_calls_of_32_threads(linear, two_way):
    with (
        ThreadPool(2) as pool,
        load(linear.path, pool=pool) as one,
        load(two_way.path, pool=pool) as other,
    ):
        inputs = [linear.inputs(seed)[0] for seed in range(8)]
        pairs = [two_way.inputs(seed) for seed in range(8)]
        expected = [one(x) for x in inputs]
        sums = [other(pair)[0] for pair in pairs]

        def work(i):
            i %= 8
            match i % 4:
                case 0:
                    result = one(inputs[i])
                case 1:
                    out = np.empty((4, 33), "f4")
                    result = one(inputs[i], out=out)
                case 2:
                    result = one.submit({"x": inputs[i]}).result()["y"]
                case _:
                    assert other(pairs[i])[0].tobytes() == sums[i].tobytes()
                    return
            assert result.tobytes() == expected[i].tobytes()

        assert hammer(work) == []
        gc.collect()
        threads, memory = len(os.listdir("/proc/self/task")), resident()
        assert hammer(work) == []
        gc.collect()
        assert len(os.listdir("/proc/self/task")) <= threads  # others may have been ending
        assert resident() - memory < 4 << 20  # 1300 bytes a call


def test_modules_come_and_go_among_calls(linear):
    """Loading, calling and closing from many threads, all of the same file."""
    with load(linear.path, threads=1) as module:
        expected = module(linear.inputs())

    def work(i):
        if i % 25:
            return
        with load(linear.path, threads=1) as module:
            np.testing.assert_array_equal(module(linear.inputs()), expected)

    assert hammer(work) == []
