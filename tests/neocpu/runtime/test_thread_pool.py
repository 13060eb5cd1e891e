"""Threads shared by modules, queued calls, and what interrupts them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import weakref
from concurrent.futures import CancelledError, wait
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.runtime.module import load
from neocpu.runtime.thread_pool import ThreadPool


@pytest.fixture
def module(linear):
    with load(linear.path, threads=2) as module:
        yield module


class Busy:
    """Keeps a pool's first thread busy until it is released."""

    def __init__(self, pool):
        self.started, self.gate = threading.Event(), threading.Event()
        self.future = pool.submit(self._run)
        assert self.started.wait(30)

    def _run(self):
        self.started.set()
        assert self.gate.wait(30)


def tasks():
    """Return the threads of pools. Threads of other code come and go."""
    return {int(name) for name in os.listdir("/proc/self/task") if _name(name) == "neocpu"}


def _name(task):
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it has ended meanwhile


def new_tasks(before):
    """Return the threads that have begun, once there are any."""
    return wait_until(lambda: tasks() - before)


def test_modules_of_one_pool_share_its_threads(linear, two_way):
    before = tasks()
    with (
        ThreadPool(2) as pool,
        load(linear.path, pool=pool) as one,
        load(two_way.path, pool=pool) as other,
        load(linear.path, pool=pool) as third,
    ):
        assert [pool.threads, one.threads, other.threads] == [2, 2, 2]
        for _ in range(3):
            (output,) = [one(linear.inputs())]
            np.testing.assert_allclose(output, linear.reference(*linear.inputs())[0], rtol=1e-5)
            sums, _ = other(two_way.inputs())
            np.testing.assert_allclose(
                sums, two_way.reference(*two_way.inputs())[0], rtol=1e-5, atol=1e-6
            )
            np.testing.assert_array_equal(third(linear.inputs()), output)
        assert len(new_tasks(before)) == 1  # and the caller


@pytest.mark.parametrize("given", [{"threads": 1}, {"pin": True}])
def test_what_a_pool_decides_is_not_to_be_given_too(linear, given):
    with ThreadPool(1) as pool, pytest.raises(UsageError, match="exclude pool="):
        load(linear.path, **given, pool=pool)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
@pytest.mark.parametrize("pin", [False, True])
def test_pinned_threads_stay_on_one_cpu(linear, pin):
    before, cpus = tasks(), os.sched_getaffinity(0)
    with load(linear.path, 2, pin=pin) as module:
        for _ in range(50):
            module(linear.inputs())
        (other,) = new_tasks(before)
        found = os.sched_getaffinity(other)
        assert found == {sorted(cpus)[1]} if pin else found <= cpus
    assert os.sched_getaffinity(0) == cpus


@pytest.mark.parametrize("threads", [0, -1, 10**6, 1.5, "2"])
def test_absurd_pools_are_refused(threads):
    with pytest.raises(UsageError, match="threads must be from 1 to"):
        neocpu.ThreadPool(threads)


def test_where_all_cores_are_alike_those_of_performance_are_all_of_them(linear):
    with neocpu.ThreadPool("performance") as pool, neocpu.ThreadPool() as every:
        assert pool.threads <= every.threads
        if not Path("/sys/devices/cpu_core").exists():
            assert pool.threads == every.threads
        x = np.ones((4, 64), "float32")
        with neocpu.load(linear.path, pool=pool) as module, neocpu.load(linear.path) as usual:
            assert module(x).tobytes() == usual(x).tobytes()
    with pytest.raises(UsageError, match="threads='performance' is for one stream"):
        neocpu.load(linear.path, "performance", streams=2)


def test_the_pool_outlives_a_module_and_not_the_other_way_round(linear):
    with ThreadPool(1) as pool:
        load(linear.path, pool=pool).close()
        module = load(linear.path, pool=pool)
        module(linear.inputs())
    pool.close()
    with pytest.raises(UsageError, match="the thread pool of module 'linear' is closed"):
        module(linear.inputs())
    with pytest.raises(UsageError, match="the thread pool of module 'linear' is closed"):
        module.submit(linear.inputs())
    module.close()
    module.close()
    with pytest.raises(UsageError, match="module 'linear' is closed"):
        module(linear.inputs())
    with pytest.raises(UsageError, match="thread pool is closed"):
        pool.submit(lambda: None)
    with pytest.raises(UsageError, match="thread pool is closed"):
        load(linear.path, pool=pool)


def test_a_module_closed_on_a_shared_pool_finishes_its_calls(linear):
    with ThreadPool(1) as pool:
        module, other = load(linear.path, pool=pool), load(linear.path, pool=pool)
        busy = Busy(pool)
        futures = [module.submit(linear.inputs()) for _ in range(5)]
        closer = threading.Thread(target=module.close)
        closer.start()
        busy.gate.set()
        closer.join(30)
        assert not closer.is_alive()
        assert all(future.done() for future in futures)
        np.testing.assert_array_equal(futures[0].result(), other(linear.inputs()))
        with pytest.raises(UsageError, match="module 'linear' is closed"):
            module(linear.inputs())
        other.close()


def test_submit_gives_what_a_call_and_run_give(two_way):
    image, mask = two_way.inputs()
    out = [np.empty_like(image), np.empty_like(image)]
    with load(two_way.path) as module:
        expected = module([image, mask])
        named = module.submit({"mask": mask, "image": image}).result(30)
        placed = module.submit([image, mask], out=out).result(30)
        with pytest.raises(UsageError, match="missing input mask"):
            module.submit({"image": image})
    assert list(named) == ["sum", "same"]
    assert placed[0] is out[0]
    for result in (tuple(named.values()), placed):
        for one, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_cancelled_call_forgets_its_inputs():
    with ThreadPool(1) as pool:
        busy = Busy(pool)
        array = np.zeros(3)
        kept = weakref.ref(array)
        future = pool.submit(partial(np.copy, array))
        del array
        assert kept() is not None
        assert future.cancel()
        assert kept() is None
        busy.gate.set()


def test_a_queued_call_can_be_cancelled(linear, module):
    busy = Busy(module._pool)
    untouched = np.full((4, 33), -1, "f4")
    first, second = module.submit(linear.inputs()), module.submit(linear.inputs(), out=untouched)
    assert second.cancel()
    assert not busy.future.cancel()
    busy.gate.set()
    assert first.result(30).shape == (4, 33)
    with pytest.raises(CancelledError):
        second.result(30)
    module(linear.inputs())
    assert (untouched == -1).all()


def test_awaiting_calls_does_not_stop_the_loop(linear, module):
    inputs = [linear.inputs(seed) for seed in range(6)]
    expected = [module(x) for x in inputs]

    async def serve():
        busy = Busy(module._pool)
        calls = [asyncio.wrap_future(module.submit(x)) for x in inputs]
        turns = 0
        while turns < 10:
            await asyncio.sleep(0)
            turns += 1
        busy.gate.set()
        return await asyncio.gather(*calls)

    for one, other in zip(asyncio.run(serve()), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_future_s_callback_may_call_the_module(linear, module):
    seen = []
    future = module.submit(linear.inputs())
    future.add_done_callback(lambda _: seen.append(module(linear.inputs())))
    wait([future], 30)
    module._pool.wait()
    np.testing.assert_array_equal(seen[0], future.result())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_exits_ends_no_thread(linear, module):
    """Futures let SystemExit through; without its thread, the next call would wait for ever."""
    busy = Busy(module._pool)
    future = module.submit(linear.inputs())
    future.add_done_callback(lambda _: sys.exit(1))
    busy.gate.set()
    np.testing.assert_array_equal(module.submit(linear.inputs()).result(30), future.result(30))


def test_collecting_a_module_waits_for_nothing(linear):
    """The collector runs anywhere, perhaps with locks that a callback on the thread waits for."""
    module = load(linear.path, threads=1)
    module.itself = module
    lock, started, over = threading.Lock(), threading.Event(), threading.Event()

    def take(_):
        started.set()
        assert lock.acquire(timeout=30)
        over.set()

    queue = module._pool._queue
    with lock:
        busy = Busy(module._pool)
        module.submit(linear.inputs()).add_done_callback(take)
        busy.gate.set()
        assert started.wait(30)
        collected = weakref.ref(module)
        del module, busy
        gc.collect()
        assert collected() is None
        assert not over.is_set()
    queue.wait()
    assert over.is_set()


def test_a_module_closed_beside_its_pool_waits_for_its_calls(linear):
    pool = ThreadPool(1)
    module = load(linear.path, pool=pool)
    expected = module(linear.inputs())
    busy = Busy(pool)
    futures = [module.submit(linear.inputs()) for _ in range(5)]
    closers = [threading.Thread(target=pool.close), threading.Thread(target=module.close)]
    closers[0].start()
    wait_until(lambda: pool.is_closed)
    closers[1].start()
    closers[1].join(0.05)
    busy.gate.set()
    for closer in closers:
        closer.join(30)
    for future in futures:
        np.testing.assert_array_equal(future.result(0), expected)


def test_close_finishes_queued_calls(linear):
    module = load(linear.path, threads=1)
    expected = module(linear.inputs())
    busy = Busy(module._pool)
    futures = [module.submit(linear.inputs()) for _ in range(20)]
    threading.Timer(0.05, busy.gate.set).start()
    module.close()
    for future in futures:
        np.testing.assert_array_equal(future.result(0), expected)


def test_a_dropped_module_finishes_queued_calls(linear):
    module = load(linear.path, threads=1)
    expected = module(linear.inputs())
    futures = [module.submit(linear.inputs()) for _ in range(20)]
    del module
    for future in futures:
        np.testing.assert_array_equal(future.result(30), expected)


def test_ctrl_c_in_a_caller_leaves_the_module_usable(linear, module):
    """The call uses the caller's arrays, and is still made."""
    expected = module(linear.inputs())
    out = np.full((4, 33), -1, "f4")
    timer = threading.Timer(
        0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
    )
    timer.start()

    def call_for_ever():
        while True:
            module(linear.inputs(), out=out)

    with pytest.raises(KeyboardInterrupt):
        call_for_ever()
    timer.join()
    np.testing.assert_array_equal(module(linear.inputs(), out=out), expected)
