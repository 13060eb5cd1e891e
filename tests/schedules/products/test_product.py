"""Products of activations, against numpy in float64."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_harness import HOST, normal, run

from neocpu.schedules.products.product import estimate, lower_product
from neocpu.schedules.products.workloads import ProductWorkload
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS
from neocpu.schedules.vocabulary.strided_view import StridedView
from tests import needs
from tests.schedules.products.test_attention import array_of


def product_of(batch, rows, columns, depth, *, turned=(False, False, False), scale=1.0):
    """Return a workload; the last axes of ``turned`` tensors are exchanged."""
    rank = len(batch)
    swap = (*range(rank), rank + 1, rank)

    def view(height, width, is_turned):
        if not is_turned:
            return StridedView.of((*batch, height, width))
        return StridedView.of((*batch, width, height)).permuted(swap)

    left, right, output = (
        view(*size, is_turned)
        for size, is_turned in zip(
            ((rows, depth), (depth, columns), (rows, columns)), turned, strict=True
        )
    )
    size = {"batch": batch, "rows": rows, "columns": columns, "depth": depth}
    return ProductWorkload(scale=scale, left=left, right=right, output=output, **size)


def check(w, threads=2, magnitude=1.0):
    left, right = (
        normal((view.size,), i) * np.float32(magnitude) for i, view in enumerate((w.left, w.right))
    )
    flat = run(lower_product(w, HOST, threads), [left, right], (w.output.size,))
    expected = w.scale * (array_of(w.left, left).astype(np.float64) @ array_of(w.right, right))
    got = array_of(w.output, flat)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-6 * w.depth)


@needs.one_in(3)
@pytest.mark.parametrize("turned", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "depth"),
    [((2, 3), 17, 16, 49), ((), 31, 45, 5), ((3,), 4, 70, 1), ((16,), 16, 16, 16)],
)
def test_matches_numpy(batch, rows, columns, depth, turned):
    check(product_of(batch, rows, columns, depth, turned=turned))


@needs.tiles
@pytest.mark.parametrize(
    ("products", "bound"), [({"splits": True}, 8e-6), ({"products": BFLOAT16_PRODUCTS}, 2.0**-7)]
)
@pytest.mark.parametrize("turned", [(0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 0)])
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "depth"),
    [((2, 3), 17, 16, 49), ((), 31, 45, 5), ((3,), 40, 70, 1), ((16,), 16, 16, 160)],
)
def test_products_in_tiles(batch, rows, columns, depth, turned, products, bound):
    w = replace(product_of(batch, rows, columns, depth, turned=turned, scale=0.5), **products)
    left, right = (normal((view.size,), i) for i, view in enumerate((w.left, w.right)))
    flat = run(lower_product(w, HOST, 2), [left, right], (w.output.size,))
    exact = w.scale * (array_of(w.left, left).astype(np.float64) @ array_of(w.right, right))
    error = array_of(w.output, flat) - exact
    assert 0 < np.linalg.norm(error) <= bound * np.linalg.norm(exact)


def test_scale_and_threads():
    check(product_of((1,), 100, 33, 20, scale=0.25), threads=1)
    check(product_of((1,), 100, 33, 20, scale=0.25), threads=8)
    check(product_of((1,), 9, 33, 20, scale=1e-36), magnitude=1e18)  # what it scales is infinite


def test_a_factor_may_be_one_for_the_whole_batch():
    w = product_of((4,), 5, 6, 7)
    one = StridedView.of((1, 7, 6)).broadcast((4, 7, 6))
    check(replace(w, right=one))


def test_the_transposed_product_is_the_same():
    w = product_of((2,), 5, 40, 7, turned=(False, False, True))
    check(w.transposed())
    assert w.transposed().transposed() == w
    assert w.flops == 2 * 2 * 5 * 40 * 7
    assert estimate(w, HOST) > 0
