"""Models that can be served in batches, and the runs that they are worth."""

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from neocpu.foundation.errors import ArtifactError, UnsupportedError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.composed.batch_plans import time_plans
from neocpu.runtime.signatures import Signature
from neocpu.serving.batches.batched_plans import (
    BESIDE,
    any_rows,
    batch_of,
    batches_of,
    check_row_independent,
    on_each,
    run_seconds,
    worthwhile,
)

PATH = Path("net.so")


def spec(name, *shape, **more):
    return TensorSpec(name, "float32", shape, **more)


def signature(inputs, outputs):
    return Signature(tuple(inputs), tuple(outputs))


@pytest.mark.parametrize(
    ("inputs", "outputs", "batch"),
    [
        ([spec("x", 4, 3)], [spec("y", 4)], 4),
        ([spec("x", 4, 3), spec("z", 4)], [spec("y", 4, 9), spec("w", 4, 1)], 4),
        # What of one image is computed is served as it comes.
        ([spec("x", 1, 3)], [spec("y", 4)], 1),
        ([spec("x", 1, 3)], [spec("boxes", 100, 7, bounded=True)], 1),
    ],
)
def test_rows_that_all_tensors_have(inputs, outputs, batch):
    assert batch_of(PATH, signature(inputs, outputs)) == batch


@pytest.mark.parametrize(
    ("inputs", "outputs", "name"),
    [
        ([spec("x", 4, 3), spec("z", 1)], [spec("y", 4)], "x"),
        ([spec("x", 4, 3)], [spec("y", 8)], "y"),
        ([spec("x", 4, 3)], [spec("y")], "y"),
        ([spec("x")], [spec("y")], "x"),
        ([spec("x", 4)], [spec("boxes", 4, 7, bounded=True)], "boxes"),
    ],
)
def test_no_rows_of_a_batch(inputs, outputs, name):
    with pytest.raises(
        UnsupportedError, match=rf"net.so: .* because {name}: .*without --max-batch"
    ):
        batch_of(PATH, signature(inputs, outputs))


def test_any_number_of_rows():
    found = any_rows(signature([spec("x", 4, 3)], [spec("y", 4)]), 16)
    expected = [spec("x", 16, 3, bounded=True)], [spec("y", 16, bounded=True)]
    assert found == signature(*expected)


def test_signatures_that_differ_only_in_their_rows_form_a_group():
    made = {
        (n, size): signature([spec("x", n, size)], [spec("y", n)])
        for n, size in ((1, 3), (4, 3), (1, 9), (2, 3))
    }
    assert batches_of(PATH, list(made.values())) == [
        {1: made[1, 3], 4: made[4, 3], 2: made[2, 3]},
        {1: made[1, 9]},
    ]


@pytest.mark.parametrize("one", [(1, 1), (), (5,)])
def test_rows_that_give_more_in_other_batches(one):
    plans = [
        signature([spec("x", 1, 3)], [spec("y", *one)]),
        signature([spec("x", 4, 3)], [spec("y", 4, 4)]),
    ]
    with pytest.raises(UnsupportedError, match=r"because y: .* does not have a row for each"):
        batches_of(PATH, plans)


def plan(**known):
    return SimpleNamespace(**{"row_function": None, "rows_mixed": None, **known})


def test_plans_that_compute_the_same_of_a_row():
    check_row_independent(PATH, [plan(row_function="a"), plan(row_function="a")])


@pytest.mark.parametrize(
    ("plans", "reason"),
    [
        ([plan(row_function="a"), plan(rows_mixed="mean 'm' reduces over rows")], "mean 'm' reduc"),
        ([plan(row_function="a"), plan(row_function="b")], "depends on how many there are"),
        ([plan()], "compile it again"),
    ],
)
def test_rows_that_are_not_known_to_be_independent(plans, reason):
    match = rf"net.so: requests cannot be computed together: .*{reason}.*; serve it without"
    with pytest.raises(UnsupportedError, match=match):
        check_row_independent(PATH, plans)


def test_every_plan_is_measured():
    sizes = []
    found = time_plans(
        lambda inputs: sizes.append(len(inputs["x"])), [spec("x", 1, 3)], {4: 1, 1: 0}
    )
    assert set(found) == {1, 4}
    assert set(sizes) == {1, 4}
    assert min(found.values()) > 0


@pytest.mark.parametrize(
    ("seconds", "rows"),
    [
        ({1: 1.0, 2: 1.5, 4: 2.0}, [1, 2, 4]),
        ({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, [1]),
        ({1: 1.0, 4: 3.9, 8: 7.7}, [1, 8]),
        ({8: 5.0, 4: 3.0, 1: 1.0}, [1, 4, 8]),
        ({1: 1.0, 4: 2.0, 8: 3.95}, [1, 4]),
        ({16: 1.0}, [16]),
    ],
)
def test_a_larger_run_has_to_be_worth_it(seconds, rows):
    assert worthwhile(seconds) == {size: seconds[size] for size in rows}


def test_runs_are_timed_on_all_workers_at_once():
    together = threading.Barrier(2, timeout=60)

    class Timed:
        def __init__(self):
            self.sizes = []

        def run(self, inputs):
            self.sizes.append(len(inputs["x"]))
            together.wait()

    workers = [Timed(), Timed()]
    found = run_seconds(workers, [TensorSpec("x", "float32", (1, 3))], [1, 4])
    assert [*found] == [1, 4]
    assert min(found.values()) > BESIDE
    assert all({*worker.sizes} == {1, 4} for worker in workers)


class Module:
    """Has calls under way until it is closed."""

    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


def test_all_are_at_it_at_the_same_time():
    together = threading.Barrier(3, timeout=60)
    assert sorted(on_each([Module()] * 3, lambda _: together.wait())) == [0, 1, 2]


def damaged():
    raise ArtifactError("damaged")


def interrupted():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("what", "error"), [(damaged, ArtifactError), (interrupted, KeyboardInterrupt)]
)
def test_whatever_is_raised_closes_them(what, error):
    first, *others = modules = [Module(), Module(), Module()]

    def work(module):
        if module is first:
            what()
        assert module is first or module.closed.wait(60)

    with pytest.raises(error):
        on_each(modules, work)
    assert all(module.closed.is_set() for module in others)
