"""The generic scheduler on Relax's fused functions, against numpy."""

import numpy as np
import pytest
import tvm
from kernel_harness import FOREIGN, HOST, compile_for, fuse, normal, run
from tvm import te, tirx

from neocpu.schedules.operators.elementwise import schedule_function


def check(build, reference, *shapes, rtol=1e-5, target=HOST):
    func, order = fuse(build, *shapes)
    scheduled = schedule_function(func, target)
    inputs = [normal(shape, seed) for seed, shape in enumerate(shapes)]
    expected = reference(*inputs)
    got = run(scheduled, [inputs[i] for i in order], expected.shape, str(expected.dtype))
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-5)
    return scheduled.script()


def relu(x):
    return np.maximum(x, 0)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize(
    "shapes",
    [
        [(1, 17, 7, 7), (1, 17, 1, 1)],
        [(1, 17, 7, 7), (1, 17, 7, 7)],
        [(2, 3, 37, 41), (3, 1, 1)],
        [(1, 4, 28, 28, 16), (1, 4, 1, 1, 16)],
        [(1, 1, 1, 5), (1, 1, 1, 1)],
        [(1, 31, 33), (33,)],
        [(5, 1, 7), (1, 9, 1)],
        [(1001,), (1001,)],
        [(64, 64, 8), (64, 64, 8)],
    ],
    ids=str,
)
def test_broadcast_add_relu(shapes):
    text = check(lambda op, x, y: op.nn.relu(op.add(x, y)), lambda x, y: relu(x + y), *shapes)
    assert 'T.sblock("T_add")' not in text, "the sum is inlined"


def test_vectors_and_tasks():
    text = check(lambda op, x: op.nn.relu(x), relu, (1, 64, 28, 28))
    assert "T.parallel" in text
    assert "T.vectorized" in text
    assert "T.parallel" not in check(lambda op, x: op.nn.relu(x), relu, (1, 8, 8, 8))


@pytest.mark.parametrize(
    "shape", [(1, 1000), (3, 1001), (20, 1000), (2, 17, 31), (128, 128), (2, 1)]
)
def test_softmax(shape):
    text = check(lambda op, x: op.nn.softmax(x, -1), softmax, shape)
    assert ("T.parallel" in text) == (np.prod(shape) >= 8192)
    assert text.count("T.parallel") <= 1, "the stages share their rows"


@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (1, 21, 33, 35)])
def test_softmax_over_channels(shape):
    check(lambda op, x: op.nn.softmax(x, 1), lambda x: softmax(x, 1), shape)


@pytest.mark.parametrize("shape", [(2, 80, 96), (3, 7, 31), (1, 196, 384)])
def test_layer_norm(shape):
    def reference(x, gamma, beta):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta

    width = shape[-1:]
    text = check(
        lambda op, x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]), reference, shape, width, width,
        rtol=1e-4,
    )  # fmt: skip
    assert "T.vectorized" in text


@pytest.mark.parametrize(
    ("shape", "groups"), [((1, 64, 28, 28), 8), ((2, 6, 5, 7), 3), ((3, 5, 11), 1), ((2, 4), 2)]
)
def test_group_norm(shape, groups):
    def reference(x, gamma, beta):
        rows = x.reshape(len(x), groups, -1)
        centred = rows - rows.mean(-1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        along = (-1, *(1 for _ in shape[2:]))
        return normal.reshape(shape) * gamma.reshape(along) + beta.reshape(along)

    check(
        lambda op, x, g, b: op.nn.group_norm(x, g, b, groups, 1, [*range(2, len(shape))]),
        reference, shape, shape[1:2], shape[1:2],
        rtol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("axes", [[2, 3], [1], [3], [1, 2, 3], [0, 2]])
@pytest.mark.parametrize("shape", [(2, 17, 7, 7), (1, 64, 28, 28), (3, 5, 1, 11)])
@pytest.mark.parametrize("name", ["mean", "max", "sum"])
def test_reductions(name, shape, axes):
    check(
        lambda op, x: getattr(op, name)(x, axis=axes, keepdims=True),
        lambda x: getattr(x, name)(tuple(axes), keepdims=True),
        shape,
        rtol=1e-4,
    )


def test_blocked_mean_is_vectorised():
    text = check(
        lambda op, x: op.mean(x, axis=[2, 3], keepdims=True),
        lambda x: x.mean((2, 3), keepdims=True),
        (1, 4, 28, 28, 16),
    )
    assert "T.vectorized" in text


@pytest.mark.parametrize(("m", "k", "n"), [(8, 64, 100), (1, 33, 7), (49, 31, 64)])
def test_matmul_of_activations(m, k, n):
    check(
        lambda op, x, y, b: op.nn.relu(op.add(op.matmul(x, y), b)),
        lambda x, y, b: relu(x @ y + b),
        (3, m, k),
        (3, k, n),
        (n,),
        rtol=1e-4,
    )


@pytest.mark.parametrize("axes", [[0, 2, 3, 1], [0, 3, 1, 2], [3, 2, 1, 0], [0, 1, 3, 2]])
@pytest.mark.parametrize("shape", [(1, 64, 28, 28), (2, 3, 5, 7), (1, 17, 1, 3)])
def test_transpose(axes, shape):
    check(lambda op, x: op.permute_dims(x, axes), lambda x: x.transpose(axes), shape)


def test_padding_and_slicing():
    pad = [0, 0, 0, 0, 1, 2, 3, 0]
    check(
        lambda op, x: op.nn.pad(x, pad),
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2), (3, 0))),
        (1, 64, 28, 28),
    )
    check(
        lambda op, x: op.strided_slice(x, [2, 3], [1, 0], [28, 27], [2, 3]),
        lambda x: x[:, :, 1:28:2, 0:27:3],
        (1, 64, 28, 28),
    )


@pytest.mark.parametrize("shape", [(1, 17, 7, 7), (1, 40, 28, 28)])
def test_concat_and_squeeze_excite(shape):
    n, c, *_ = shape
    check(
        lambda op, x, y: op.concat([x, y], axis=1),
        lambda x, y: np.concatenate([x, y], 1),
        shape,
        (n, 5, *shape[2:]),
    )
    check(
        lambda op, x, y: op.multiply(x, op.sigmoid(y)),
        lambda x, y: x / (1 + np.exp(-y)),
        shape,
        (n, c, 1, 1),
    )


def test_argmax_keeps_its_loops_but_runs_in_parallel():
    text = check(lambda op, x: op.argmax(x, axis=1), lambda x: x.argmax(1), (20, 1000))
    assert "T.parallel" in text


def test_repeated_operators_in_one_function():
    def build(op, x, y):
        return op.multiply(op.add(op.exp(op.add(op.add(x, y), y)), x), op.exp(y))

    def reference(x, y):
        return (np.exp(x + y + y) + x) * np.exp(y)

    check(build, reference, (1, 8, 28, 28), (1, 8, 1, 1), rtol=1e-4)


@pytest.mark.parametrize("name", ["exp", "erf"])
def test_chains_of_exponentials_are_cut(name):
    """TVM would take more than a minute for six nested ones."""

    def chain(op, x):
        for _ in range(6):
            x = getattr(op, name)(x)
        return x

    func, _ = fuse(chain, (3, 41))
    blocks = schedule_function(func, HOST).script().count('T.sblock("compute')
    assert blocks > 1


def test_resize():
    check(
        lambda op, x: op.image.resize2d(
            x, (56, 56), method="nearest_neighbor", layout="NCHW",
            coordinate_transformation_mode="asymmetric", rounding_method="floor",
        ),
        lambda x: x.repeat(2, 2).repeat(2, 3),
        (1, 16, 28, 28),
    )  # fmt: skip


def test_scheduled_functions_are_left_alone():
    func, _ = fuse(lambda op, x: op.nn.relu(x), (1, 64, 28, 28))
    once = schedule_function(func, HOST)
    assert once.attrs["tirx.is_scheduled"]
    assert schedule_function(once, HOST).same_as(once)


def test_runtime_calls_are_left_as_they_are():
    x = te.placeholder((64, 256), name="x")
    opaque = te.extern(
        [x.shape], [x], lambda i, o: tirx.call_packed("some.sort", i[0], o[0]), dtype="float32"
    )
    func = te.create_prim_func([x, opaque])
    scheduled = schedule_function(func, HOST)
    tvm.ir.assert_structural_equal(scheduled.body, func.body)
    assert scheduled.attrs["tirx.is_scheduled"]


def test_one_task_is_not_launched():
    """Flattening the input of a dense layer is a single loop."""
    function, _ = fuse(lambda op, x: op.reshape(op.add(x, x), (1, 25088)), (1, 512, 7, 7))
    assert "T.parallel(" not in schedule_function(function, HOST).script()


def test_dynamic_shapes_are_left_as_they_are():
    n = te.var("n")
    x = te.placeholder((n, 16), name="x")
    func = te.create_prim_func([x, te.compute((n, 16), lambda i, j: x[i, j] + 1.0)])
    assert schedule_function(func, HOST).attrs["tirx.is_scheduled"]


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_compiles_for_other_cpus(target):
    for build, shapes in (
        (lambda op, x, y: op.nn.relu(op.add(x, y)), [(1, 64, 28, 28), (1, 64, 1, 1)]),
        (lambda op, x: op.nn.softmax(x, -1), [(20, 1000)]),
        (lambda op, x: op.mean(x, axis=[2, 3]), [(1, 64, 28, 28)]),
    ):
        func, _ = fuse(build, *shapes)
        assert "main" in compile_for(schedule_function(func, target), target)
