"""Rows of channels are feature maps in a special layout, and maps become rows by it."""

import pytest
from networks import HOST, build, run_as_tvm
from op_counts import op_counts
from tvm import relax

from neocpu.planning.extract import extract


def check(mod):
    """Run a module as TVM does, and return the compiled module."""
    return run_as_tvm(mod)[1]


def to_map(net, x, height, *, reshape_first):
    n, pixels, channels = (int(extent) for extent in x.ty.shape.values)
    width = pixels // height
    if reshape_first:
        x = net.emit(relax.op.reshape(x, (n, height, width, channels)))
        return net.emit(relax.op.permute_dims(x, [0, 3, 1, 2]))
    x = net.emit(relax.op.permute_dims(x, [0, 2, 1]))
    return net.emit(relax.op.reshape(x, (n, channels, height, width)))


def to_rows(net, x):
    n, channels, height, width = (int(extent) for extent in x.ty.shape.values)
    x = net.emit(relax.op.reshape(x, (n, channels, height * width)))
    return net.emit(relax.op.permute_dims(x, [0, 2, 1]))


@pytest.mark.parametrize("reshape_first", [False, True])
@pytest.mark.parametrize(("images", "channels"), [(1, 48), (2, 33)])
def test_a_depthwise_convolution_between_dense_layers_transposes_nothing(
    images, channels, reshape_first
):
    def body(net, x):
        hidden = net.emit(relax.op.matmul(x, net.const(20, channels)))
        hidden = net.conv(
            to_map(net, hidden, 5, reshape_first=reshape_first), channels, groups=channels
        )
        return net.emit(relax.op.matmul(to_rows(net, hidden), net.const(channels, 7)))

    rewritten = check(build(body, (images, 30, 20)))
    assert "relax.permute_dims" not in op_counts(rewritten.mod)


def test_rows_of_whole_vectors_are_convolved_and_added_where_they_lie():
    """The sum that the second convolution reads keeps the layout too, though it is no neighbour."""
    channels = 6 * HOST.lanes("float32")

    def block(net, pixels):
        rows = to_rows(net, net.conv(pixels, channels, groups=channels))
        made = to_map(net, net.emit(relax.op.nn.softmax(rows)), 12, reshape_first=True)
        return net.emit(relax.op.add(pixels, made))

    def body(net, x):
        hidden = net.emit(relax.op.matmul(x, net.const(20, channels)))
        pixels = to_map(net, hidden, 12, reshape_first=False)
        for _ in range(2):
            pixels = block(net, pixels)
        return net.emit(relax.op.matmul(to_rows(net, pixels), net.const(channels, 7)))

    assert not check(build(body, (1, 180, 20))).transforms


def test_a_map_that_is_read_as_it_is_and_as_rows():
    def body(net, x):
        x = net.conv(x, 24)
        total = net.emit(relax.op.sum(x, axis=[0]))
        return net.emit(relax.Tuple([to_rows(net, x), x, total]))

    check(build(body, (1, 3, 9, 8)))


def test_rows_that_are_read_in_between():
    """A tensor that is only reshaped exists only if something else reads it."""

    def body(net, x):
        turned = net.emit(relax.op.permute_dims(x, [0, 2, 1]))
        pixels = net.emit(relax.op.reshape(turned, (1, 16, 6, 5)))
        return net.emit(relax.Tuple([net.conv(pixels, 8), net.relu(turned)]))

    check(build(body, (1, 30, 16)))


def test_rows_that_attention_stores_transposed():
    """The rows are never stored, so that the map is a reshape of attention's output."""

    def body(net, x):
        scores = net.emit(relax.op.matmul(x, net.emit(relax.op.permute_dims(x, [0, 2, 1]))))
        weights = net.emit(relax.op.nn.softmax(scores, -1))
        turned = net.emit(relax.op.matmul(weights, x))
        turned = net.emit(relax.op.permute_dims(turned, [0, 2, 1]))
        pixels = net.emit(relax.op.reshape(turned, (1, 16, 6, 5)))
        return net.emit(relax.Tuple([net.conv(pixels, 8), net.relu(turned)]))

    check(build(body, (1, 30, 16)))


def test_other_transposes_and_few_channels_stay():
    def body(net, x):
        swapped = net.emit(relax.op.permute_dims(x, [0, 1, 3, 2]))
        few = net.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        return net.emit(relax.Tuple([swapped, few]))

    mod = build(body, (1, 4, 6, 5))
    assert not extract(mod).tokens
    check(mod)


def test_a_map_that_is_repeated_for_more_images_is_no_rows():
    def body(net, x):
        return net.emit(relax.op.broadcast_to(net.conv(x, 8), (4, 8, 8, 8)))

    mod = build(body, (1, 3, 8, 8))
    assert not extract(mod).tokens
    check(mod)
