"""Attention and products of activations are recognised with their surroundings, and right."""

import numpy as np
import pytest
from networks import build, run_as_tvm
from tvm import relax

from neocpu.ir.constants import make_const
from neocpu.planning.extract import extract


def check(mod):
    """Run a module as TVM does, and return its products."""
    return run_as_tvm(mod, 1e-5)[0].products


def kinds(products):
    return sorted(one.name.rpartition("_")[0] for one in products)


def heads_of(net, x, heads, part, *, split):
    """Return q, k or v of a projection (image, token, 3 · channel), by heads."""
    images, tokens, channels = (int(n) for n in x.ty.shape.values)
    depth = channels // 3 // heads
    if split == "slice":
        width = channels // 3
        x = net.emit(relax.op.strided_slice(x, [2], [part * width], [(part + 1) * width]))
        x = net.emit(relax.op.reshape(x, (images, tokens, heads, depth)))
        return net.emit(relax.op.permute_dims(x, [0, 2, 1, 3]))
    x = net.emit(relax.op.reshape(x, (images, tokens, 3, heads, depth)))
    x = net.emit(relax.op.permute_dims(x, [2, 0, 3, 1, 4]))
    if split == "take":
        return net.emit(relax.op.take(x, relax.const(part, "int64"), axis=0))
    parts = net.emit(relax.op.split(x, 3, axis=0))
    part = net.emit(relax.TupleGetItem(parts, part))
    return net.emit(relax.op.reshape(part, (images, heads, tokens, depth)))


def joined(net, x):
    images, heads, tokens, depth = (int(n) for n in x.ty.shape.values)
    x = net.emit(relax.op.permute_dims(x, [0, 2, 1, 3]))
    return net.emit(relax.op.reshape(x, (images, tokens, heads * depth)))


def half(net, x):
    return net.emit(relax.op.multiply(x, relax.const(0.5, "float32")))


def attended(net, scores, v, axis=-1):
    weights = net.emit(relax.op.nn.softmax(scores, axis))
    return net.emit(relax.op.matmul(weights, v))


def transposed(net, x):
    rank = len(x.ty.shape.values)
    return net.emit(relax.op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2]))


@pytest.mark.parametrize(
    ("split", "scaled"),
    [("slice", "queries"), ("slice", "both"), *((s, "scores") for s in ("slice", "take", "split"))],
)
def test_a_projections_heads_are_read_and_written_in_place(split, scaled):
    def body(net, x):
        q, k, v = (heads_of(net, x, 3, part, split=split) for part in range(3))
        q = half(net, q) if scaled != "scores" else q
        k = transposed(net, k)
        k = half(net, k) if scaled == "both" else k
        scores = net.emit(relax.op.matmul(q, k))
        scores = half(net, scores) if scaled == "scores" else scores
        return joined(net, attended(net, scores, v))

    mod = build(body, (2, 13, 72))
    (attention,) = check(mod)
    assert attention.name.startswith("attention")
    w = attention.workload
    assert (w.batch, w.queries, w.keys, w.depth) == ((2, 3), 13, 13, 8)
    assert w.scale == (0.25 if scaled == "both" else 0.5)
    assert all(source.same_as(mod["main"].params[0]) for source in attention.sources)
    assert len(attention.absorbed) == len(mod["main"].body.blocks[0].bindings) - 2


def test_windows_with_biases_and_masks():
    """Swin adds a bias to each head, and a mask of another shape to each window."""

    def body(net, q, k, v, mask):
        scores = net.emit(relax.op.matmul(q, transposed(net, k)))
        bias = make_const(np.random.default_rng(0).standard_normal((1, 2, 9, 9)).astype("float32"))
        scores = net.emit(relax.op.add(scores, bias))
        scores = net.emit(relax.op.reshape(scores, (1, 4, 2, 9, 9)))
        mask = net.emit(relax.op.reshape(mask, (1, 4, 1, 9, 9)))
        scores = net.emit(relax.op.add(mask, scores))
        scores = net.emit(relax.op.reshape(scores, (4, 2, 9, 9)))
        return attended(net, scores, v, 3)

    (attention,) = check(build(body, *[(4, 2, 9, 5)] * 3, (4, 9, 9)))
    assert len(attention.workload.biases) == 2


def test_weights_that_something_else_reads_are_stored():
    def body(net, q, k, v):
        scores = net.emit(relax.op.matmul(q, k))
        weights = net.emit(relax.op.nn.softmax(scores, -1))
        out = net.emit(relax.op.matmul(weights, v))
        total = net.emit(relax.op.sum(weights, axis=[1, 2], keepdims=True))
        return net.emit(relax.op.add(out, total))

    assert kinds(check(build(body, (2, 6, 5), (2, 5, 7), (2, 7, 6)))) == ["product", "product"]


@pytest.mark.parametrize("axis", [1, 2])
def test_a_softmax_over_queries_is_no_attention(axis):
    def body(net, q, k, v):
        scores = net.emit(relax.op.matmul(q, k))
        return attended(net, scores, v, axis)

    found = kinds(check(build(body, (2, 6, 5), (2, 5, 7), (2, 7, 6))))
    assert found == (["attention"] if axis == 2 else ["product", "product"])


def test_cross_attention_over_feature_maps():
    """SegFormer has few keys, and its queries are feature maps, channels first."""

    def body(net, x, y):
        q = transposed(net, net.emit(relax.op.reshape(x, (1, 12, 30))))
        k = net.emit(relax.op.reshape(y, (1, 12, 4)))
        scores = half(net, net.emit(relax.op.matmul(q, k)))
        weights = net.emit(relax.op.nn.softmax(scores, -1))
        out = net.emit(relax.op.matmul(weights, transposed(net, k)))
        return net.emit(relax.op.reshape(transposed(net, out), (1, 12, 5, 6)))

    (attention,) = check(build(body, (1, 12, 5, 6), (1, 12, 2, 2)))
    assert attention.workload.keys == 4
    assert attention.workload.output.stride(1) == 1


def test_keys_and_values_that_heads_share():
    """Grouped-query attention repeats them for each head; the kernel reads them in place."""

    def body(net, q, k, v):
        def repeated(x):
            x = net.emit(relax.op.reshape(x, (2, 2, 1, 7, 5)))
            x = net.emit(relax.op.broadcast_to(x, (2, 2, 3, 7, 5)))
            return net.emit(relax.op.reshape(x, (2, 6, 7, 5)))

        scores = half(net, net.emit(relax.op.matmul(q, transposed(net, repeated(k)))))
        return attended(net, scores, repeated(v))

    mod = build(body, (2, 6, 4, 5), (2, 2, 7, 5), (2, 2, 7, 5))
    (attention,) = check(mod)
    params = mod["main"].params
    assert all(s.same_as(p) for s, p in zip(attention.sources, params, strict=True))


@pytest.mark.parametrize("again", [False, True])
def test_masks_that_may_hide_all_keys(again):
    """PyTorch's boolean masks make NaN, which becomes zero."""

    def body(net, q, k, v, mask):
        scores = net.emit(relax.op.matmul(q, transposed(net, k)))
        hidden = net.emit(relax.op.less(mask, relax.const(0.0, "float32")))
        lowest, zero = relax.const(-np.inf, "float32"), relax.const(0.0, "float32")
        scores = net.emit(relax.op.add(scores, net.emit(relax.op.where(hidden, lowest, zero))))
        weights = net.emit(relax.op.nn.softmax(scores, -1))
        some = net.emit(relax.op.where(net.emit(relax.op.isnan(weights)), zero, weights))
        made = net.emit(relax.op.matmul(some, v))
        return net.emit(relax.op.matmul(weights, made)) if again else made

    found = check(build(body, *[(3, 4, 4)] * 3, (3, 1, 4)))
    if again:
        assert kinds(found) == ["product", "product", "product"]
    else:
        (attention,) = found
        assert attention.workload.zeros


def test_linear_attention():
    def body(net, q, k, v):
        context = net.emit(relax.op.matmul(transposed(net, k), v))
        return net.emit(relax.op.matmul(q, context))

    assert kinds(check(build(body, *[(2, 3, 50, 8)] * 3))) == ["product", "product"]


def test_heads_on_the_last_axis_are_moved_by_another_kernel():
    """Threads that compute a head each would write to each other's cache lines."""

    def body(net, q, k):
        scores = net.emit(relax.op.matmul(q, transposed(net, k)))
        return net.emit(relax.op.permute_dims(scores, [0, 2, 3, 1]))

    (product,) = check(build(body, (1, 3, 6, 5), (1, 3, 7, 5)))
    assert product.workload.output.stride(3) == 1


def test_a_negative_scale_is_no_attention():
    def body(net, q, k, v):
        scores = net.emit(relax.op.matmul(q, k))
        scores = net.emit(relax.op.multiply(scores, relax.const(-0.5, "float32")))
        return attended(net, scores, v)

    assert kinds(check(build(body, (6, 5), (5, 7), (7, 6)))) == ["product", "product"]


def test_weights_that_several_batches_of_values_share_are_no_attention():
    def body(net, q, k, v):
        weights = net.emit(relax.op.nn.softmax(net.emit(relax.op.matmul(q, k)), -1))
        return net.emit(relax.op.matmul(weights, v))

    found = kinds(check(build(body, (3, 6, 5), (3, 5, 7), (2, 3, 7, 6))))
    assert found == ["product", "product"]


@pytest.mark.parametrize("again", ["attention", "product"])
def test_a_tensor_that_another_product_reads_is_stored(again):
    """The first product could be stored transposed, but the second reads it as it is."""

    def body(net, q, k, v):
        weights = net.emit(relax.op.nn.softmax(net.emit(relax.op.matmul(q, k)), -1))
        turned = transposed(net, net.emit(relax.op.matmul(weights, v)))
        scores = net.emit(relax.op.matmul(q, turned))
        if again == "attention":
            weights = net.emit(relax.op.nn.softmax(scores, -1))
            scores = net.emit(relax.op.matmul(weights, v))
        return net.emit(relax.op.add(scores, net.relu(turned)))

    found = kinds(check(build(body, (2, 6, 6), (2, 6, 6), (2, 6, 6))))
    assert found == sorted(["attention", again])


@pytest.mark.parametrize("step", ["bias", "values"])
def test_a_tensor_that_attention_both_reads_and_fuses_is_stored(step):
    def body(net, q, k, v):
        scores = net.emit(relax.op.matmul(q, k))
        scores = net.emit(relax.op.add(scores, scores)) if step == "bias" else scores
        weights = net.emit(relax.op.nn.softmax(scores, -1))
        return net.emit(relax.op.matmul(weights, v if step == "bias" else weights))

    found = kinds(check(build(body, *[(2, 6, 6)] * 3)))
    assert found == ["product", "product"]


def test_sums_of_a_value_and_itself_are_looked_at_once():
    def body(net, x, v):
        for _ in range(60):
            x = net.emit(relax.op.add(x, x))
        return net.emit(relax.op.matmul(net.emit(relax.op.nn.softmax(x, -1)), v))

    assert kinds(extract(build(body, (2, 6, 5), (2, 5, 7))).products) == ["product"]


def talking(before, after, *, kernel=1, batch=2):
    """Attention whose scores are mixed across heads by two transposes and a layer."""

    def body(net, x):
        q, k, v = (heads_of(net, x, 4, part, split="take") for part in range(3))
        scores = half(net, net.emit(relax.op.matmul(q, transposed(net, k))))
        scores = net.conv(scores, 4, kernel) if before else scores
        weights = net.emit(relax.op.nn.softmax(scores, -1))
        if after:
            weights = net.emit(relax.op.nn.conv2d(weights, net.const(4, 4, 1, 1)))
        return joined(net, net.emit(relax.op.matmul(weights, v)))

    return build(body, (batch, 19, 3 * 4 * 5))


@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)])
def test_heads_that_talk_to_each_other_are_one_kernel(before, after):
    (found,) = check(talking(before, after))
    assert (found.workload.mixed_before, found.workload.mixed_after) == (before, after)
    assert not extract(talking(before, after)).ops


def test_heads_that_talk_about_their_neighbours_are_not():
    products = check(talking(True, False, kernel=3, batch=1))
    assert kinds(products) == ["product", "product"]
