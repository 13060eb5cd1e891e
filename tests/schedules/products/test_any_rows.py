"""Attention and products of any number of rows by one kernel."""

from dataclasses import replace

import numpy as np
import pytest
from any_rows import AnyRows
from kernel_harness import HOST, THREADS, call, normal, unwritten

from neocpu.schedules.products.attention import lower_attention
from neocpu.schedules.products.product import lower_product
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS
from neocpu.schedules.vocabulary.strided_view import StridedView
from tests import needs
from tests.schedules.products.test_attention import (
    array_of,
    contiguous,
    expected,
    in_bfloat16,
    inputs_of,
    workload_of,
)
from tests.schedules.products.test_product import product_of

CHECKED = (1, 2, 16, 31, 97, 197, 512, 640)


def tokens(count):
    """Return self-attention of tokens with 3 heads, as models split heads off."""

    def view(count):
        whole = StridedView.of((1, count, 3, 24)).permuted((0, 2, 1, 3))
        return whole.in_parts_of(StridedView.of((1, 9, 3, 24)).permuted((0, 2, 1, 3)))

    return replace(
        workload_of(*4 * (view(count),), 0.2),
        batch=(1, 3),
        queries=count,
        keys=count,
        depth=24,
        width=24,
    )


def biased(count):
    """Return attention of many queries to a fixed number of keys, with a bias."""
    w = contiguous((2,), count, 37, 16, biases=((1, count, 37),))
    return _with_one_row(w, contiguous((2,), 9, 37, 16, biases=((1, 9, 37),)))


def of_keys(count):
    """Return attention of a few queries to any number of keys; some are masked."""
    w = contiguous((2,), 6, count, 8, biases=((6, count),))
    return _with_one_row(w, contiguous((2,), 6, 9, 8, biases=((6, 9),)))


def _with_one_row(w, like):
    views = {name: getattr(w, name).in_parts_of(getattr(like, name)) for name in "qkv"}
    output = w.output.in_parts_of(like.output)
    biases = tuple(a.in_parts_of(b) for a, b in zip(w.biases, like.biases, strict=True))
    return replace(w, output=output, biases=biases, **views)


@pytest.mark.parametrize("make", [tokens, biased, of_keys])
@pytest.mark.parametrize(
    ("way", "bound"),
    [
        ({}, 1e-6),
        pytest.param({"splits": True}, 1.5e-5, marks=needs.tiles),
        pytest.param("bfloat16", 2.0**-7, marks=needs.instruction_set("avx512bf16")),
    ],
)
def test_one_kernel_attends_to_any_number_of_tokens(make, way, bound):
    def workload_of(count):
        return in_bfloat16(make(count)) if way == "bfloat16" else replace(make(count), **way)

    kernel = AnyRows(workload_of, lambda key: lower_attention(key, HOST, THREADS))
    for count in CHECKED:
        w = make(count)
        arguments = inputs_of(w)
        (flat,) = call(kernel.of(count), arguments, [unwritten((w.output.size,))], exact=False)
        error = array_of(w.output, flat) - (exact := expected(w, *arguments))
        assert np.linalg.norm(error) <= bound * np.linalg.norm(exact), count


def product_with(place, turned):
    """Return a function that makes a product whose extent at ``place`` is that of its argument."""

    def make(count):
        def own(count):
            extents = [20, 37, 24]
            extents[place] = count
            return product_of((2,), *extents, turned=turned)

        w, like = own(count), own(9)
        names = ("left", "right", "output")
        views = {name: getattr(w, name).in_parts_of(getattr(like, name)) for name in names}
        return replace(w, **views)

    return make


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("turned", [(0, 0, 0), (1, 1, 1)])
@pytest.mark.parametrize(
    ("way", "bound"),
    [
        ({}, 1e-6),
        pytest.param({"splits": True}, 1.5e-5, marks=needs.tiles),
        pytest.param({"products": BFLOAT16_PRODUCTS}, 2.0**-7, marks=needs.tiles),
    ],
)
@needs.one_in(3)
def test_one_kernel_multiplies_any_number_of_rows(place, turned, way, bound):
    make = product_with(place, turned)
    kernel = AnyRows(
        lambda count: replace(make(count), **way), lambda key: lower_product(key, HOST, THREADS)
    )
    for count in CHECKED:
        w = make(count)
        left, right = (normal((view.size,), i) for i, view in enumerate((w.left, w.right)))
        (flat,) = call(kernel.of(count), [left, right], [unwritten((w.output.size,))], exact=False)
        exact = array_of(w.left, left).astype(np.float64) @ array_of(w.right, right)
        error = array_of(w.output, flat) - exact
        assert np.linalg.norm(error) <= bound * np.linalg.norm(exact), count
