"""Attention, and products of activations, for CPUs whose vectors are not the host's."""

import emulated_kernel
import numpy as np
import pytest
from test_emulated_kernels import CPUS, on

from neocpu.schedules.products.attention import lower_attention
from neocpu.schedules.products.product import lower_product
from neocpu.schedules.products.workloads import AttentionWorkload, ProductWorkload
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS
from neocpu.schedules.vocabulary.strided_view import StridedView

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def computed(func, cpu, arguments, shape, folder):
    flat = [np.ascontiguousarray(argument).reshape(-1) for argument in arguments]
    unwritten = np.full(np.prod(shape), np.nan, np.float32)
    (got,) = emulated_kernel.run(func, CPUS[cpu], flat, [unwritten], folder)
    return got.reshape(shape)


def attention_of(keys, **products):
    """Return a workload, its data, and its result in float64."""
    batch, queries, depth, width = (2,), 7, 11, 21
    shapes = [(2, queries, depth), (2, keys, depth), (2, keys, width), (queries, keys)]
    q, k, v, bias = (normal(*shape) for shape in shapes)
    bias[3, 2:] = -np.inf
    views = [StridedView.of(shape) for shape in shapes]
    output = StridedView.of((2, queries, width))
    over = views[3].broadcast((2, queries, keys))
    workload = AttentionWorkload(
        batch=batch,
        queries=queries,
        keys=keys,
        depth=depth,
        width=width,
        scale=0.3,
        q=views[0],
        k=views[1],
        v=views[2],
        output=output,
        biases=(over,),
        **products,
    )
    scores = q.astype(np.float64) @ k.swapaxes(1, 2) * 0.3 + bias
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return workload, (q, k, v, bias), powers / powers.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("cpu", "keys"),
    [on(cpu, keys) for cpu in ("alderlake", "cortex-a76", "neoverse-v1") for keys in (13, 530)],
)
def test_attention(cpu, keys, tmp_path):
    workload, arguments, expected = attention_of(keys)
    func = lower_attention(workload, CPUS[cpu], 2)
    got = computed(func, cpu, arguments, expected.shape, tmp_path)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("cpu", "keys", "products", "bound"),
    [
        on("sapphirerapids", 13, {"splits": True}, 1.5e-5),
        on("sapphirerapids", 270, {"splits": True}, 1.5e-5),
        on("sapphirerapids", 13, {"products": BFLOAT16_PRODUCTS}, 2.0**-7),
    ],
)
def test_attention_in_tiles(cpu, keys, products, bound, tmp_path):
    workload, arguments, expected = attention_of(keys, **products)
    func = lower_attention(workload, CPUS[cpu], 2)
    got = computed(func, cpu, arguments, expected.shape, tmp_path)
    assert bound / 100 < np.linalg.norm(got - expected) / np.linalg.norm(expected) <= bound


@pytest.mark.parametrize("cpu", [on("alderlake"), on("cortex-a76"), on("neoverse-v1")])
def test_product(cpu, tmp_path):
    left, right = normal(2, 3, 7, 9), normal(2, 3, 21, 9)  # the latter is transposed
    turned = StridedView.of(right.shape).permuted((0, 1, 3, 2))
    workload = ProductWorkload(
        batch=(2, 3),
        rows=7,
        columns=21,
        depth=9,
        scale=0.5,
        left=StridedView.of(left.shape),
        right=turned,
        output=StridedView.of((2, 3, 7, 21)),
    )
    func = lower_product(workload, CPUS[cpu], 2)
    got = computed(func, cpu, (left, right), (2, 3, 7, 21), tmp_path)
    expected = left.astype(np.float64) @ right.swapaxes(2, 3) * 0.5
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
