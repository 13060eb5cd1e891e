"""The worker: order, errors, and its end."""

import threading

import pytest

from neocpu.runtime.worker import Worker


@pytest.fixture
def worker():
    worker = Worker("test")
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
