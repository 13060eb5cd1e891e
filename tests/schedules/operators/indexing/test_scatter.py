"""Scatters and gathers of single elements, at shapes for one and for several threads."""

import math

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx

from neocpu.frontend.numpy_operators.lookup_operators import (
    GatherElements,
    ScatterElements,
    ScatterND,
)
from neocpu.schedules.operators.indexing.lookup import lower_gather_elements, lower_take
from neocpu.schedules.operators.indexing.scatter import (
    REDUCTIONS,
    ElementsWorkload,
    RowsWorkload,
    lower_scatter_elements,
    lower_scatter_nd,
)
from tests.schedules.kernel_harness import normal, run

RNG = np.random.default_rng(0)


def indices(shape: tuple[int, ...], extent: int, dtype: str) -> np.ndarray:
    """Return indices; some are out of bounds, and most occur several times."""
    return RNG.integers(-extent - 2, extent + 2, shape).astype(dtype)


def elements(data, places, axis, reduction):
    kinds = {"dtype": "float32", "index_dtype": "int64"}
    shapes = {"data": data, "indices": places, "axis": axis}
    return ElementsWorkload(reduction=reduction, **shapes, **kinds)


def flat(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.reshape(-1) for array in arrays]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("data", "places", "axis"),
    [
        ((1, 9, 1), (1, 40, 1), 1),
        ((3, 4, 5), (2, 7, 3), 1),
        ((1, 30, 700), (1, 50, 700), 1),  # parts of the last axis
        ((40, 300, 1), (40, 500, 1), 1),  # a task per row
        ((40, 300, 1), (33, 500, 1), 1),  # fewer rows of indices than of data
        ((4, 9, 500), (4, 30, 500), 1),  # tasks that copy parts of rows
    ],
)
def test_scatter_elements(data, places, axis, reduction):
    workload = elements(data, places, axis, reduction)
    x, i, u = normal(data), indices(places, data[axis], "int64"), normal(places, seed=1)
    found = run(lower_scatter_elements(workload), flat(x, i, u), (math.prod(data),))
    (expected,) = ScatterElements._run(None, x, i, u, axis, reduction)
    np.testing.assert_allclose(found, expected.reshape(-1), rtol=1e-6)


@pytest.mark.parametrize(
    ("data", "places", "axis", "loops"),
    [
        ((40, 3000, 1), (40, 3000, 1), 1, 1),  # a task copies the row that it alone writes to
        ((40, 3000, 1), (39, 3000, 1), 1, 2),  # a row that no task writes to
        ((4, 3000, 1), (4, 30000, 1), 1, 2),  # few tasks
    ],
)
def test_tasks_copy_only_the_part_they_write(data, places, axis, loops):
    workload = elements(data, places, axis, "none")
    found: list[tirx.For] = []
    body = lower_scatter_elements(workload).body
    tvm_ffi.structural_walk(body, (tirx.For, found.append), order="pre")
    parallel = [loop for loop in found if loop.kind == tirx.ForKind.PARALLEL]
    assert len(parallel) == loops


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("extents", "rows", "inner"),
    [
        ((5,), 7, 3),
        ((4, 3), 9, 1),
        ((2, 3, 4), 60, 1000),
        ((70, 13), 900, 16),  # rows too short for tasks to share: each has some of the data
    ],
)
def test_scatter_nd(extents, rows, inner, reduction):
    size, kinds = {"rows": rows, "inner": inner}, {"dtype": "float32", "index_dtype": "int32"}
    workload = RowsWorkload(extents=extents, reduction=reduction, **size, **kinds)
    x, u = normal((*extents, inner)), normal((rows, inner), seed=1)
    i = np.stack([indices((rows,), extent, "int32") for extent in extents], axis=1)
    found = run(lower_scatter_nd(workload), flat(x, i, u), (x.size,))
    (expected,) = ScatterND._run(None, x, i, u, reduction)
    np.testing.assert_allclose(found, expected.reshape(-1), rtol=1e-6)


@pytest.mark.parametrize(
    ("data", "places", "axis"),
    [
        ((1, 9, 1), (1, 40, 1), 1),
        ((3, 4, 5), (2, 4, 9), 2),
        ((70, 30, 9), (70, 20, 9), 1),
        ((3, 50, 37), (3, 41, 37), 1),
        ((2, 1, 900), (2, 1, 101), 2),
    ],
)
def test_gather_elements(data, places, axis):
    x, i = normal(data), indices(places, data[axis], "int64")
    kernel = lower_gather_elements(data, places, axis, "float32", "int64")
    found = run(kernel, flat(x, i), (math.prod(places),))
    np.testing.assert_array_equal(found, GatherElements._run(None, x, i, axis)[0].reshape(-1))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64", "float32"])
@pytest.mark.parametrize("inner", [1, 15, 16, 17, 33])
def test_rows_are_taken(inner, dtype):
    """An index out of bounds counts as the nearest valid one."""
    x = RNG.integers(0, 2, (3, 7, inner)).astype(dtype)
    i = np.array([6, 0, -3, 2, 99])
    found = run(
        lower_take((3, 7, inner), 5, dtype, "int64"), [x.reshape(-1), i], (15 * inner,), dtype
    )
    expected = x[:, i.clip(0, 6)]
    np.testing.assert_array_equal(found, expected.reshape(-1))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64"])
@pytest.mark.parametrize("width", [9, 16, 21])
def test_elements_of_any_type_are_gathered(width, dtype):
    x, i = RNG.integers(0, 2, (4, width)).astype(dtype), indices((4, width), width, "int64")
    kernel = lower_gather_elements((4, width), (4, width), 1, dtype, "int64")
    found = run(kernel, flat(x, i), (4 * width,), dtype)
    np.testing.assert_array_equal(found, GatherElements._run(None, x, i, 1)[0].reshape(-1))
