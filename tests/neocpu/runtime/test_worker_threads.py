"""The worker: order, errors, and its end."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from neocpu.runtime import worker_threads as workers
from neocpu.runtime.worker_threads import Job, Worker


@pytest.fixture
def worker():
    worker = Worker("test", 1)
    yield worker
    worker.stop()


def test_jobs_run_in_order_on_one_other_thread(worker):
    seen = []

    def note(i):
        seen.append(i)
        return threading.get_ident()

    jobs = [worker.submit(lambda i=i: note(i)) for i in range(100)]
    threads = {job.result() for job in jobs}
    assert seen == list(range(100))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_an_error_reaches_the_caller_and_the_worker_lives_on(worker):
    job = worker.submit(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            job.result()
    assert worker.submit(lambda: 5).result() == 5


def test_stop_finishes_queued_jobs_and_refuses_later_ones(worker):
    gate = threading.Event()
    worker.submit(gate.wait)
    jobs = [worker.submit(lambda i=i: i) for i in range(10)]
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    gate.set()
    stopper.join(10)
    assert [job.result() for job in jobs] == list(range(10))
    assert worker.submit(lambda: 0) is None
    worker.stop()


def test_stop_from_its_own_thread_does_not_deadlock(worker):
    assert worker.submit(worker.stop).result() is None
    assert worker.submit(lambda: 0) is None


def test_a_signal_may_stop_it_while_its_own_thread_queues_a_job(worker):
    """As a handler of SIGTERM that closes a module does."""
    previous = signal.signal(signal.SIGUSR1, lambda *_: worker.stop())
    try:
        with worker._lock:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert worker.submit(lambda: 0) is None


def test_an_interruption_after_the_end_of_a_call_waits_for_nothing(worker):
    """Ctrl-C may be handled between two instructions, with the result there and the lock taken."""
    job = worker.submit(lambda: 5)
    assert job._done.acquire(timeout=30)
    abandoning = threading.Thread(target=job.abandon, daemon=True)
    abandoning.start()
    abandoning.join(10)
    assert not abandoning.is_alive()


def test_an_abandoned_job_is_not_made(worker):
    gate, made = threading.Event(), []
    worker.submit(gate.wait)
    job = Job(lambda: made.append(1))
    assert worker.put(job)
    job.abandon()
    gate.set()
    worker.stop()
    assert not made


def test_what_a_job_raises_is_reported_and_the_worker_lives_on(worker, monkeypatch):
    class Exits:
        def run(self):
            raise SystemExit

    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda uncaught: reported.append(uncaught))
    worker.put(Exits())
    assert worker.submit(lambda: 5).result() == 5
    assert [uncaught.exc_type for uncaught in reported] == [SystemExit]


def test_a_thread_is_handed_on_to_the_next_worker_of_as_many_threads():
    def who(worker):
        return worker.submit(lambda: (threading.get_ident(), threading.current_thread().name))

    first, other = Worker("first", 3), Worker("other", 4)
    thread, name = who(first).result()
    other_thread, _ = who(other).result()
    assert name == "first"
    first.stop()
    second = Worker("second", 3)
    assert who(second).result() == (thread, "second")
    assert who(first) is None
    assert other_thread != thread
    # On the thread that was its own, a stopped worker is not waited for, and takes no calls.
    assert second.submit(lambda: (first.stop(), first.is_current)).result() == (None, False)
    for worker in (second, other):
        worker.stop()


def test_a_dropped_worker_does_its_jobs_before_its_thread_serves_another():
    seen, gate = [], threading.Event()
    first = Worker("first", 5)
    first.submit(gate.wait)
    first.submit(lambda: seen.append("first"))
    first.end()
    second = Worker("second", 5)
    second.submit(lambda: seen.append("second")).result()
    assert seen == ["second"]
    gate.set()
    first.stop()
    assert seen == ["second", "first"]
    second.stop()


POOLS = """
import os, time
import neocpu
from neocpu.runtime import worker_threads
from neocpu.runtime.ffi import runtime
worker_threads.KEEP_SECONDS = 0.1
tasks = lambda: len(os.listdir("/proc/self/task"))
runtime()  # which has a thread of its own
before = tasks()
for threads in range(1, 13):
    neocpu.ThreadPool(threads).close()
while tasks() > before:
    time.sleep(0.01)
"""


def test_threads_that_nobody_takes_up_end_with_their_pools():
    environment = {**os.environ, "TVM_THREAD_POOL_SPIN_COUNT": "0"}
    subprocess.run([sys.executable, "-c", POOLS], env=environment, check=True, timeout=60)


@pytest.mark.usefixtures("no_idle_threads")
def test_no_worker_is_lost_to_a_thread_that_is_about_to_end(monkeypatch):
    monkeypatch.setattr(workers, "KEEP_SECONDS", 1e-4)
    for number in range(500):
        worker = Worker("test", 1)
        job = worker.submit(lambda number=number: number)
        assert job is not None
        assert job.result() == number
        worker.stop()
        time.sleep(number % 4 * 5e-5)
