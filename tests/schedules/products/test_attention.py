"""Attention as one kernel, against numpy in float64."""

import math
from dataclasses import replace

import needs
import numpy as np
import pytest
from kernel_harness import HOST, compile_for, normal, run

from neocpu.schedules.products import attention
from neocpu.schedules.products.attention import lower_attention
from neocpu.schedules.products.workloads import AttentionWorkload
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS
from neocpu.schedules.vocabulary.strided_view import StridedView
from neocpu.schedules.vocabulary.target_parsing import parse_target


def workload_of(q, k, v, output, scale, **more):
    """Return a workload of views, from which its extents follow."""
    *batch, queries, depth = q.shape
    keys, width = v.shape[-2:]
    size = {"queries": queries, "keys": keys, "depth": depth, "width": width}
    views = {"q": q, "k": k, "v": v, "output": output}
    return AttentionWorkload(batch=tuple(batch), scale=scale, **size, **views, **more)


def contiguous(batch, queries, keys, depth, width=None, scale=None, biases=(), **more):
    """Return a workload of contiguous tensors; biases are shapes that broadcast."""
    width = width or depth
    shapes = (queries, depth), (keys, depth), (keys, width), (queries, width)
    views = [StridedView.of((*batch, *shape)) for shape in shapes]
    matrices = (*batch, queries, keys)
    added = tuple(StridedView.of(bias).broadcast(matrices) for bias in biases)
    return workload_of(*views, scale or depth**-0.5, biases=added, **more)


def channels_first(shape):
    """Return a workload of feature maps (head, channel, pixel) that attend to themselves."""
    heads, channels, pixels = shape
    view = StridedView.of(shape).permuted((0, 2, 1))
    size = (heads, pixels, channels)
    output = StridedView.of(size).permuted((0, 2, 1)).inverse(size)
    return workload_of(view, view, view, output, 0.2)


def array_of(view, flat):
    """Return the elements of a flat array that a view selects."""
    places = view.start(list(np.indices(view.shape)))
    return flat[np.broadcast_to(places, view.shape)]


def mixed(array, mix):
    heads = array.shape[-3]
    weights, biases = mix[: heads * heads].reshape(heads, heads), mix[heads * heads :]
    made = np.einsum("gh,...hqk->...gqk", weights.astype(np.float64), array)
    return made + biases[:, None, None]


def expected(w, q, k, v, *rest):
    q, k, v = (
        array_of(view, flat).astype(np.float64)
        for view, flat in zip((w.q, w.k, w.v), (q, k, v), strict=True)
    )
    mixes = list(rest[len(w.biases) :])
    scores = q @ np.swapaxes(k, -1, -2) * w.scale
    for view, flat in zip(w.biases, rest, strict=False):
        scores = scores + array_of(view, flat)
    if w.mixed_before:
        scores = mixed(scores, mixes.pop(0))
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return (mixed(weights, mixes.pop(0)) if w.mixed_after else weights) @ v


def inputs_of(w):
    views = (w.q, w.k, w.v, *w.biases)
    return [normal((view.size,), seed) for seed, view in enumerate(views)]


def check(w, arguments=None, threads=2):
    arguments = arguments or inputs_of(w)
    flat = run(lower_attention(w, HOST, threads), arguments, (w.output.size,))
    got = array_of(w.output, flat)
    np.testing.assert_allclose(got, expected(w, *arguments), rtol=2e-5, atol=2e-6)


AWKWARD = pytest.mark.parametrize(
    ("batch", "queries", "keys", "depth", "width"),
    [
        ((), 1, 1, 1, 1),
        ((2, 3), 49, 49, 32, 32),
        ((1, 3), 197, 197, 64, 64),
        ((5,), 1, 37, 7, 7),
        ((2,), 13, 5, 24, 128),
        ((1, 1), 31, 16, 33, 17),
        ((2,), 6, 1100, 8, 20),
        ((1,), 5, 1024, 16, 16),
        ((16, 16), 16, 16, 16, 16),
        ((33,), 33, 33, 33, 33),
    ],
)


@AWKWARD
def test_matches_numpy(batch, queries, keys, depth, width):
    check(contiguous(batch, queries, keys, depth, width), threads=1 + len(batch))


def in_bfloat16(workload):
    return replace(workload, products=BFLOAT16_PRODUCTS)


def check_bfloat16(w, arguments=None):
    """Only factors of products may err, by half a unit in the eighth place."""
    arguments = arguments or inputs_of(w)
    flat = run(lower_attention(in_bfloat16(w), HOST, 2), arguments, (w.output.size,))
    error = array_of(w.output, flat) - (exact := expected(w, *arguments))
    assert np.linalg.norm(error) <= 2.0**-7 * np.linalg.norm(exact)
    assert error.any(), "bfloat16 was multiplied"


@needs.instruction_set("avx512bf16")
@AWKWARD
def test_bfloat16_errs_as_it_does(batch, queries, keys, depth, width):
    check_bfloat16(contiguous(batch, queries, keys, depth, width))


@needs.instruction_set("avx512bf16")
@pytest.mark.parametrize("shape", [(3, 24, 50), (1, 7, 33), (2, 33, 17)])
def test_channels_of_bfloat16_may_come_first(shape):
    check_bfloat16(channels_first(shape))


@needs.instruction_set("avx512bf16")
@pytest.mark.parametrize("keys", [3, 601])
def test_masks_of_bfloat16(keys):
    """Memory beyond the last key has no effect on results."""
    mask = np.zeros((6, keys), np.float32)
    mask[1, 1:] = mask[2, :-1] = mask[3] = -np.inf
    w = in_bfloat16(contiguous((2,), 6, keys, 7, biases=((6, keys),), zeros=True))
    arguments = [*inputs_of(w)[:3], mask.reshape(-1)]
    arguments[0][0] = np.nan
    made = run(lower_attention(w, HOST), arguments, (w.output.size,)).reshape(2, 6, 7)
    exact = np.array(expected(w, *arguments))
    exact[:, 3] = exact[0, 0] = 0
    assert not made[:, 3].any()
    assert not made[0, 0].any()
    np.testing.assert_allclose(made, exact, rtol=0.03, atol=0.03)


@pytest.mark.parametrize(
    ("cpu", "instruction"),
    [
        ("-mtriple=x86_64-linux-gnu -mcpu=cooperlake", "vdpbf16ps"),
        ("-mtriple=x86_64-linux-gnu -mcpu=sapphirerapids", "tdpbf16ps"),
        ("-mtriple=aarch64-linux-gnu -mcpu=neoverse-n2", "bfdot"),
    ],
)
def test_bfloat16_is_multiplied_by_its_instruction(cpu, instruction):
    target = parse_target(f"llvm {cpu}")
    w = in_bfloat16(contiguous((3,), 197, 197, 64))
    assembly = compile_for(lower_attention(w, target, 2), target)
    assert instruction in assembly


def check_split(w, arguments=None, threads=2):
    """Factors err by 2^-17, and scores of a few units by a few millionths."""
    arguments = arguments or inputs_of(w)
    flat = run(lower_attention(replace(w, splits=True), HOST, threads), arguments, (w.output.size,))
    error = array_of(w.output, flat) - (exact := expected(w, *arguments))
    assert np.linalg.norm(error) <= 1.5e-5 * np.linalg.norm(exact)
    return flat


@needs.tiles
@AWKWARD
def test_split_attention_errs_a_few_millionths(batch, queries, keys, depth, width):
    check_split(contiguous(batch, queries, keys, depth, width), threads=1 + len(batch))


@needs.tiles
@pytest.mark.parametrize("shape", [(3, 24, 50), (1, 7, 33), (2, 33, 17)])
def test_split_channels_may_come_first(shape):
    check_split(channels_first(shape))


@needs.tiles
@pytest.mark.parametrize("keys", [3, 49, 700])
def test_split_attention_adds_biases_and_masks(keys):
    biases = ((1, 2, 37, keys), (3, 1, 37, keys), (3, 1, 1, keys), (37, 1))
    check_split(contiguous((3, 2), 37, keys, 16, biases=biases))
    mask = np.zeros((6, keys), np.float32)
    mask[1, 1:] = mask[2, :-1] = mask[3] = -np.inf
    w = contiguous((2,), 6, keys, 8, biases=((6, keys),), zeros=True)
    arguments = [*inputs_of(w)[:3], mask.reshape(-1)]
    arguments[0][0] = np.nan  # of the first query
    func = lower_attention(replace(w, splits=True), HOST)
    made = run(func, arguments, (w.output.size,)).reshape(2, 6, 8)
    exact = np.array(expected(w, *arguments))
    exact[:, 3] = exact[0, 0] = 0
    np.testing.assert_allclose(made, exact, rtol=1e-4, atol=1e-5)


def test_attention_is_split_only_on_cpus_with_tiles():
    w = replace(contiguous((3,), 197, 197, 64), splits=True)
    for cpu, has_tiles in (("sapphirerapids", True), ("znver4", False)):
        target = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
        assert ("tdpbf16ps" in compile_for(lower_attention(w, target, 2), target)) == has_tiles


def test_heads_are_read_and_written_in_the_layout_of_projections():
    """The layout is (image, token, one of q, k and v, head, channel), and heads are joined."""
    images, tokens, heads, depth = 2, 37, 3, 8
    whole = StridedView.of((images, tokens, 3, heads, depth))
    q, k, v = (
        whole.sliced(2, part, 1).permuted((0, 2, 3, 1, 4)).reshaped((images, heads, tokens, depth))
        for part in range(3)
    )
    joined = StridedView.of((images, heads, tokens, depth)).permuted((0, 2, 1, 3))
    output = joined.inverse((images, heads, tokens, depth))
    w = workload_of(q, k, v, output, 0.3)
    data = normal((whole.size,), 1)
    check(w, [data, data, data])
    flat = run(lower_attention(w, HOST), [data] * 3, (output.size,))
    rows = flat.reshape(images, tokens, heads, depth)
    got = array_of(output, flat)
    np.testing.assert_array_equal(rows.transpose(0, 2, 1, 3), got)


def test_channels_may_come_first():
    check(channels_first((3, 24, 50)))


@pytest.mark.parametrize("keys", [49, 700])
def test_biases_are_added_to_scores(keys):
    biases = ((1, 2, 5, keys), (3, 1, 5, keys), (3, 1, 1, keys), (5, 1))
    check(contiguous((3, 2), 5, keys, 16, biases=biases))


@pytest.mark.parametrize("keys", [3, 600])
def test_masks_hide_keys(keys):
    w = contiguous((2,), 6, keys, 8, biases=((6, keys),))
    mask = np.zeros((6, keys), np.float32)
    mask[1, 1:] = mask[2, :-1] = mask[3] = -np.inf  # the fourth row sees nothing
    mask[4] = np.finfo(np.float32).min  # and the fifth all alike
    arguments = [*inputs_of(w)[:3], mask.reshape(-1)]
    check(w, arguments)
    flat = run(lower_attention(w, HOST), arguments, (w.output.size,))
    rows = flat.reshape(2, 6, 8)
    assert np.isnan(rows[:, 3]).all()
    assert np.isfinite(np.delete(rows, 3, axis=1)).all()
    arguments[0][0] = np.nan  # of the first query
    zeros = contiguous((2,), 6, keys, 8, biases=((6, keys),), zeros=True)
    made = run(lower_attention(zeros, HOST), arguments, (w.output.size,)).reshape(2, 6, 8)
    rows[:, 3] = rows[0, 0] = 0
    np.testing.assert_array_equal(made, rows)


def test_scores_that_overflow_without_their_scale():
    w = contiguous((2,), 5, 21, 8, scale=1e-36)
    q, k, v = inputs_of(w)
    check(w, [q * 1e16, k * 1e20, v])
    # And where keys lie side by side, channel by channel.
    view = StridedView.of((2, 8, 21)).permuted((0, 2, 1))
    turned = workload_of(w.q, view, w.v, w.output, 1e-36)
    check(turned, [q * 1e16, k * 1e20, v])


@pytest.mark.parametrize("keys", [40, 600])
def test_large_scores_and_nan(keys):
    w = contiguous((), 4, keys, 4, scale=1.0)
    q, k, v = inputs_of(w)
    check(w, [q * 100, k * 10, v])
    for value in (np.nan, np.inf):
        q[5] = value  # of the second query
        flat = run(lower_attention(w, HOST), [q, k, v], (w.output.size,)).reshape(4, 4)
        assert np.isnan(flat[1]).all()
        assert np.isfinite(np.delete(flat, 1, axis=0)).all()


def test_estimates_grow_with_the_work():
    sizes = [attention.estimate(contiguous((3,), n, n, 64), HOST) for n in (10, 100, 1000)]
    assert sizes == sorted(sizes)
    assert math.isfinite(sizes[-1])
