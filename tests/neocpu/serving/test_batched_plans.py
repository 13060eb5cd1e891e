"""Which models can be served in batches, and what their rows must not do."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from neocpu.foundation.errors import UnsupportedError
from neocpu.runtime.signatures import Signature
from neocpu.serving.batched_plans import any_rows, batch_of, batches_of, measure_plans
from neocpu.tensor_spec import TensorSpec

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
    with pytest.raises(UnsupportedError, match=rf"net.so: .*'{name}' .*without --max-batch"):
        batch_of(PATH, signature(inputs, outputs))


def test_any_number_of_rows():
    found = any_rows(signature([spec("x", 4, 3)], [spec("y", 4)]), 16)
    expected = [spec("x", 16, 3, bounded=True)], [spec("y", 16, bounded=True)]
    assert found == signature(*expected)


def test_signatures_that_differ_in_their_rows_are_together():
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
    with pytest.raises(UnsupportedError, match=r"'y' is .* not a row of each"):
        batches_of(PATH, plans)


def module(function):
    return SimpleNamespace(run=lambda inputs: {"y": function(inputs["x"])})


def last_bits(x):
    """Rows whose sums are added up in another order at every other place."""
    y = x.astype("float32").sum(axis=1)
    y[::2] = x[::2, ::-1].astype("float32").sum(axis=1) + np.float32(1e-6)
    return y


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("apart", [lambda x: x * 2, lambda x: x.argmax(axis=1), last_bits])
def test_rows_apart(apart, size):
    (times,) = measure_plans(PATH, module(apart), [spec("x", size, 50)], [size]).items()
    assert times[0] == size
    assert times[1] > 0


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: x - x.mean(axis=0),
        lambda x: x / np.abs(x).max(),
        lambda x: x[::-1],
        lambda x: np.cumsum(x, axis=0),
        lambda x: x + np.arange(len(x), dtype="float32")[:, None],
        lambda x: (x > x.mean()).astype("int64"),
    ],
)
def test_rows_that_have_a_part_in_each_other(mixing, size):
    with pytest.raises(UnsupportedError, match="rows of 'y' depend on other rows"):
        measure_plans(PATH, module(mixing), [spec("x", size, 50)], [size])


def test_rows_that_depend_on_how_many_there_are():
    halves = module(lambda x: x / np.float32(len(x)))
    with pytest.raises(UnsupportedError, match="rows of 'y' depend on other rows"):
        measure_plans(PATH, halves, [spec("x", 1, 50)], [1, 2])


@pytest.mark.parametrize(
    "many",
    [
        lambda x: x.astype("float16"),
        lambda x: x[:, ::-1],  # as if sorted by what differs in the last digit
        lambda x: (10 * x).astype("int64"),
    ],
)
def test_plans_may_differ_in_precision_and_so_in_classes_and_order(many):
    either = module(lambda x: many(x) if len(x) > 1 else x)
    assert set(measure_plans(PATH, either, [spec("x", 1, 50)], [1, 8])) == {1, 8}


def test_every_plan_is_measured():
    times = measure_plans(PATH, module(np.copy), [spec("x", 1, 3)], [1, 4])
    assert set(times) == {1, 4}
