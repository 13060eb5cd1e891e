"""Requests that are computed jointly, on workers that run calls when the test asks."""

import gc
import itertools
import random
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from sized_toys import sized

from neocpu.foundation.errors import UsageError
from neocpu.foundation.size_formulas import Size
from neocpu.serving.batches.batching import Batcher, Batching
from neocpu.serving.metrics import Metrics, ModelMetrics
from neocpu.serving.sized_requests import SizedRequests


class FakeWorker:
    def __init__(self):
        self.calls = []

    @property
    def pending(self):
        return len(self.calls)

    def submit(self, call):
        self.calls.append((call, Future()))
        return self.calls[-1][1]

    def step(self):
        """Make the oldest call."""
        call, future = self.calls[0]
        if future.set_running_or_notify_cancel():
            call()
            future.set_result(None)
        del self.calls[0]

    def wait(self):
        while self.calls:
            self.step()

    def finish(self, began):
        return 0.0, 0.001


class FakeModule:
    """Computes ``y`` = 2 x + 1, and first calls ``before`` with the rows of the batch."""

    def __init__(self, before=len):
        self.batches = []
        self.given = None
        self.before = before

    def run(self, inputs):
        self.given = inputs["x"]
        self.batches.append(inputs["x"].copy())
        self.before(inputs["x"])
        return {"y": 2 * inputs["x"] + 1}


class Scene:
    """A batcher with its workers and modules, and the calls it has delayed."""

    def __init__(self, seconds, most, delay=1.0, workers=1, before=len, sized=None):
        self.registry = CollectorRegistry()
        self.workers = [FakeWorker() for _ in range(workers)]
        self.modules = [FakeModule(before) for _ in range(workers)]
        metrics = ModelMetrics(Metrics(self.registry), "net", "1")
        batching = Batching(most, delay)
        self.batcher = Batcher(self.modules, self.workers, seconds, batching, metrics, sized)
        self.delays = []
        self.asked = 0

    def ask(self, rows=1, width=2):
        """Queue a request; return its rows and its answer."""
        self.asked += 1
        x = np.full((rows, width), self.asked, "float32")
        later = lambda seconds, end: self.delays.append((seconds, end))  # noqa: E731
        return x, self.batcher.submit({"x": x}, later)

    def let(self):
        """End the oldest delay."""
        seconds, end = self.delays.pop(0)
        assert seconds == 1.0
        end()

    def ran(self):
        """Run all queued calls; return the rows of the batches so far, without spare ones."""
        while any(worker.calls for worker in self.workers):
            next(worker for worker in self.workers if worker.calls).step()
        return [batch[:, 0].tolist() for module in self.modules for batch in module.batches]

    def sample(self, name):
        return self.registry.get_sample_value(name, {"model": "net", "version": "1"})


def check(*asked):
    for x, answer in asked:
        np.testing.assert_array_equal(answer.result(timeout=0)["y"], 2 * x + 1)


def test_a_full_batch_begins_at_once_and_a_smaller_one_after_its_delay():
    scene = Scene({4: 1.0}, most=4)
    asked = [scene.ask() for _ in range(6)]
    assert scene.ran() == [[1, 2, 3, 4]]
    check(*asked[:4])
    assert not asked[4][1].done()
    for _ in range(5):
        scene.let()
    assert scene.ran() == [[1, 2, 3, 4], [5, 6, 0, 0]]
    check(*asked)
    assert scene.sample("neocpu_batch_rows_sum") == 6
    assert scene.sample("neocpu_batch_rows_count") == 2
    assert scene.sample("neocpu_spare_rows_total") == 2
    assert scene.sample("neocpu_queue_seconds_count") == 6


def test_what_comes_while_a_run_is_queued_is_taken_too():
    scene = Scene({8: 1.0}, most=8)
    asked = [scene.ask(), scene.ask()]
    scene.let()
    asked += [scene.ask(), scene.ask()]
    assert len(scene.workers[0].calls) == 1
    assert scene.ran() == [[1, 2, 3, 4, 0, 0, 0, 0]]
    check(*asked)


def test_a_delay_that_ended_before_the_run_began_leaves_no_other_waiting():
    """Rows beyond a queued run begin with the next run, or when their own delay ends."""
    scene = Scene({2: 1.0}, most=2)
    asked = [scene.ask() for _ in range(3)]
    assert scene.ran() == [[1, 2]]
    while scene.delays:
        scene.let()
    assert scene.ran() == [[1, 2], [3, 0]]
    check(*asked)


@pytest.mark.parametrize(
    ("seconds", "runs"),
    [
        ({1: 1.0, 2: 1.5, 4: 2.0, 8: 3.0}, [[1, 2, 3, 4, 5, 0, 0, 0]]),
        ({1: 1.0, 4: 2.0, 8: 9.0}, [[1, 2, 3, 4], [5]]),
        ({1: 1.0, 2: 1.6, 8: 90.0}, [[1, 2], [3, 4], [5]]),
    ],
)
def test_plans_are_those_of_the_fastest_composition(seconds, runs):
    scene = Scene(seconds, most=8)
    worker = scene.workers[0]
    worker.submit(lambda: None)  # another model's call, behind which all of them come
    asked = [scene.ask() for _ in range(5)]
    while scene.delays:
        scene.let()
    assert scene.ran() == runs
    check(*asked)


def test_nobody_waits_where_a_larger_batch_is_hardly_faster():
    scene = Scene({1: 1.0, 2: 1.99, 4: 3.9}, most=4)
    first = scene.ask()
    assert scene.ran() == [[1]]
    assert scene.sample("neocpu_spare_rows_total") == 0
    check(first)


def test_larger_runs_that_are_hardly_faster_are_not_made():
    scene = Scene({1: 1.0, 2: 1.99, 4: 3.9}, most=4)
    scene.workers[0].submit(lambda: None)
    asked = [scene.ask(), scene.ask(), scene.ask(2)]
    assert scene.ran() == [[1], [2], [3], [3]]
    check(*asked)


def test_without_a_delay_nobody_waits():
    scene = Scene({4: 1.0}, most=4, delay=0)
    asked = scene.ask()
    assert scene.ran() == [[1, 0, 0, 0]]
    assert not scene.delays
    check(asked)


def test_a_request_may_have_any_number_of_rows():
    scene = Scene({2: 1.0, 4: 1.5}, most=10**9)
    asked = scene.ask(202)
    assert [len(batch) for batch in scene.ran()] == [4] * 50 + [2]
    check(asked)


def test_a_request_may_have_more_rows_than_any_plan():
    scene = Scene({4: 1.0}, most=16)
    asked = [scene.ask(2), scene.ask(7), scene.ask(1)]
    assert scene.ran() == [[1, 1, 2, 2], [2, 2, 2, 2], [2, 3, 0, 0]]
    check(*asked)


def test_a_batch_has_no_more_rows_than_allowed():
    scene = Scene({16: 1.0}, most=3)
    asked = [scene.ask() for _ in range(4)]
    while scene.delays:
        scene.let()
    assert [sorted(batch, reverse=True)[:3] for batch in scene.ran()] == [[3, 2, 1], [4, 0, 0]]
    check(*asked)


def test_rows_that_are_a_batch_are_read_where_they_lie():
    scene = Scene({4: 1.0}, most=4)
    x, answer = scene.ask(4)
    scene.ran()
    assert scene.modules[0].given is x
    check((x, answer))


def test_rows_are_let_go_of_with_their_answer():
    """They are freed at once, and not by the garbage collector some requests later."""
    scene = Scene({4: 1.0}, most=4)
    gc.disable()
    try:
        x, answer = scene.ask(4)
        scene.ran()
        check((x, answer))
        rows = weakref.ref(x)
        scene.modules[0].given = None
        del x, answer
        assert rows() is None
    finally:
        gc.enable()


def test_a_cancelled_request_is_not_computed_and_hurts_no_other():
    scene = Scene({4: 1.0}, most=4)
    asked = [scene.ask() for _ in range(3)]
    assert asked[1][1].cancel()
    scene.let()
    assert scene.ran() == [[1, 3, 0, 0]]
    check(asked[0], asked[2])


def test_it_is_too_late_to_cancel_what_is_computed():
    cancelled = []
    scene = Scene({2: 1.0}, most=2, before=lambda _: cancelled.append(asked[0][1].cancel()))
    asked = [scene.ask(), scene.ask()]
    scene.ran()
    assert cancelled == [False]
    check(*asked)


def test_when_all_are_cancelled_nothing_runs():
    scene = Scene({2: 1.0}, most=2)
    asked = [scene.ask(), scene.ask()]
    for _, answer in asked:
        answer.cancel()
    assert scene.ran() == []
    after = [scene.ask(), scene.ask()]
    assert scene.ran() == [[3, 4]]
    check(*after)


def test_a_run_that_fails_fails_those_it_was_for():
    def damaged(x):
        if x.max() < 3:
            raise OSError("damaged")

    scene = Scene({2: 1.0}, most=16, before=damaged)
    failed, good = [scene.ask(), scene.ask(2)], scene.ask(3)
    assert scene.ran() == [[1, 2], [3, 3], [3, 0]]
    for _, answer in failed:
        with pytest.raises(OSError, match="damaged"):
            answer.result(timeout=0)
    check(good)


def test_workers_share_the_runs():
    scene = Scene({2: 1.0}, most=2, workers=2)
    nested = []
    # While the first worker runs, more come: they go to the second.
    scene.modules[0].before = lambda _: nested.extend([scene.ask(), scene.ask()])
    asked = [scene.ask(), scene.ask()]
    scene.workers[0].step()
    assert [len(worker.calls) for worker in scene.workers] == [0, 1]
    scene.ran()
    check(*asked, *nested)


@pytest.mark.parametrize(
    ("seconds", "busy", "runs"),
    [
        ({1: 1.0, 2: 1.5, 4: 2.4, 8: 4.0, 16: 7.0}, False, [8, 8]),
        ({1: 1.0, 2: 1.5, 4: 2.4, 8: 4.0, 16: 7.0}, True, [16]),
        ({1: 1.0, 16: 7.0}, False, [16]),  # half of them take as long as all
        ({16: 7.0}, False, [16]),
    ],
)
def test_workers_that_are_free_share_what_waits(seconds, busy, runs):
    """Otherwise a client that asks again on its answer would share one worker with all others."""
    scene = Scene(seconds, most=16, workers=2)
    first, second = scene.workers
    if busy:
        first.submit(lambda: None)
        second.submit(lambda: None)
        second.submit(lambda: None)
    asked = [scene.ask() for _ in range(16)]
    scene.modules[0].before = lambda _: [second.step() for _ in range(bool(second.calls))]
    while first.calls:
        first.step()
    made = [len(batch) for module in scene.modules for batch in module.batches]
    assert made == runs
    check(*asked)
    assert len(scene.delays) == 16  # which have not ended


def test_rows_of_one_request_are_shared_too():
    scene = Scene({2: 1.5, 4: 2.4, 8: 4.0}, most=8, workers=4)
    for worker, after in itertools.pairwise(
        range(4)
    ):  # while a worker's run lasts, the next begins
        scene.modules[worker].before = lambda _, after=after: scene.workers[after].step()
    asked = scene.ask(8)
    scene.ran()
    assert [len(batch) for module in scene.modules for batch in module.batches] == [2, 2, 2, 2]
    check(asked)


def test_a_worker_that_is_free_first_makes_the_run_that_waits():
    scene = Scene({1: 1.0}, most=1, workers=2)
    first, second = scene.workers
    asked = [scene.ask() for _ in range(3)]
    # During the second worker's run, the next run waits for the first worker, which is as busy.
    scene.modules[0].before = lambda _: second.step()
    first.step()
    assert all(future.cancelled() for _, future in first.calls)
    scene.ran()
    assert [len(module.batches) for module in scene.modules] == [1, 2]
    check(*asked)


def test_closing_computes_what_waits():
    scene = Scene({8: 1.0}, most=16)
    asked = [scene.ask(), scene.ask(5)]
    scene.workers[0].submit = _at_once
    scene.batcher.close()
    assert scene.ran() == [[1, 2, 2, 2, 2, 2, 0, 0]]
    check(*asked)


def test_closing_waits_for_runs_under_way():
    scene = Scene({2: 1.0}, most=2)
    scene.batcher._workers[0] = worker = ThreadWorker()
    began, end = threading.Event(), threading.Event()
    scene.modules[0].before = lambda _: (began.set(), end.wait(60))
    asked = scene.ask(2)
    assert began.wait(60)
    closing = threading.Thread(target=scene.batcher.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    end.set()
    closing.join(60)
    check(asked)
    worker.pool.shutdown()


def test_what_comes_after_closing_is_refused():
    scene = Scene({4: 1.0}, most=4)
    scene.batcher.close()
    with pytest.raises(UsageError, match="closed"):
        scene.ask()
    assert scene.ran() == []


def _at_once(call):
    done = Future()
    thread = threading.Thread(target=lambda: (call(), done.set_result(None)))
    thread.start()
    return done


class ThreadWorker(FakeWorker):
    """A worker that makes calls on its own thread."""

    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(1)

    def submit(self, call):
        return self.pool.submit(call)

    def wait(self):
        self.pool.submit(len, ()).result()


def test_many_at_once():
    """Several threads use several workers, and cancel some requests."""
    workers = [ThreadWorker(), ThreadWorker()]
    modules = [FakeModule(), FakeModule()]
    metrics = ModelMetrics(Metrics(CollectorRegistry()), "net", "1")
    batcher = Batcher(modules, workers, {1: 1.0, 3: 1.5, 4: 1.6}, Batching(10, 1.0), metrics)
    timers = ThreadPoolExecutor(1)
    later = lambda _, end: timers.submit(end)  # noqa: E731

    def client(seed):
        rng = random.Random(seed)
        asked = []
        for number in range(60):
            x = np.full((rng.randint(1, 10), 2), 1000 * seed + number, "float32")
            answer = batcher.submit({"x": x}, later)
            if rng.random() < 0.2:
                answer.cancel()
            asked.append((x, answer))
        for x, answer in asked:
            if not answer.cancelled():
                np.testing.assert_array_equal(answer.result(timeout=60)["y"], 2 * x + 1)
        return True

    with ThreadPoolExecutor(4) as clients:
        assert all(clients.map(client, range(4)))
    batcher.close()
    timers.shutdown()
    for worker in workers:
        worker.pool.shutdown()
    assert {len(batch) for module in modules for batch in module.batches} <= {1, 3, 4}


WIDTH = Size(name="t", least=1, most=9, step=1, typical=2)
ROWS = Size(name="n", least=1, most=16, step=1, typical=1)


def any_width(size=None):
    """Return requests of x[4,t], or of x[n,t] if ``size`` is n."""
    sizes = (WIDTH,) if size is None else (ROWS, WIDTH)
    rows = (4,) if size is None else ()
    shapes = lambda *values: ((*rows, *values),)  # noqa: E731
    axes = [(0, 1)] if size is None else [(0, 0), (0, 1)]
    return SizedRequests(sized(sizes, axes, shapes, shapes), rows=8, size=size)


def test_requests_of_equal_sizes_share_a_batch():
    scene = Scene({4: 1.0}, most=4, sized=any_width())
    asked = [scene.ask(width=2 + number % 2) for number in range(8)]
    assert scene.ran() == [[1, 3, 5, 7], [2, 4, 6, 8]]
    check(*asked)
    assert [each.shape for each in scene.modules[0].batches] == [(4, 2), (4, 3)]


def test_other_sizes_wait_no_longer_than_their_own_delay():
    scene = Scene({4: 1.0}, most=4, sized=any_width())
    asked = [scene.ask(width=2), scene.ask(width=3), scene.ask(width=2)]
    assert scene.ran() == []
    scene.let()
    assert scene.ran() == [[1, 3, 0, 0]]
    scene.let()
    assert scene.ran() == [[1, 3, 0, 0], [2, 0, 0, 0]]
    check(*asked)


def test_a_size_that_is_the_number_of_rows_leaves_none_to_spare():
    scene = Scene({1: 1.0, 4: 1.0}, most=4, sized=any_width(ROWS))
    asked = [scene.ask() for _ in range(3)]
    for _ in asked:
        scene.let()
    assert scene.ran() == [[1, 2, 3]]
    check(*asked)
    assert scene.sample("neocpu_spare_rows_total") == 0


def test_runs_are_counted_by_size():
    scene = Scene({4: 1.0}, most=4, sized=any_width())
    for number in range(8):
        scene.ask(width=2 + number % 2)
    scene.ran()
    for width in (2, 3):
        labels = {"model": "net", "version": "1", "size": f"t={width}"}
        name = "neocpu_size_inference_seconds_count"
        assert scene.registry.get_sample_value(name, labels) == 1
