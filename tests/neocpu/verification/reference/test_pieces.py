"""The reference computes the same in pieces as at once, on any number of CPUs."""

import threading
import warnings

import numpy as np
import pytest
from onnx import helper

from neocpu.frontend.numpy_operators import pieces
from neocpu.frontend.numpy_operators.pieces import SHARED, in_pieces
from neocpu.verification.reference.evaluator import _flushed
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.differential import make_model
from tests.text_models import nodes_of

RNG = np.random.default_rng(0)


@pytest.fixture(params=[1, 3], ids="{} CPUs".format)
def small(request, monkeypatch):
    """Pieces of a few elements."""
    monkeypatch.setattr(pieces, "IN_CACHE", 24)
    monkeypatch.setattr(pieces, "usable_cpus", lambda: request.param)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("count", [0, 1, 7, 8 * SHARED * 5 + 3])
def test_every_piece_is_computed_once(count):
    done, threads = np.zeros(count, int), set()

    def work(part):
        done[part] += 1
        threads.add(threading.get_ident())

    in_pieces(count, 3, work)
    assert (done == 1).all()


def test_errors_in_another_thread_are_raised(monkeypatch):
    monkeypatch.setattr(pieces, "usable_cpus", lambda: 2)

    def fails(part):
        raise ValueError("a piece")

    with pytest.raises(ValueError, match="a piece"):
        in_pieces(64, pieces.IN_CACHE, fails)


def test_overflows_are_treated_there_as_here(monkeypatch):
    monkeypatch.setattr(pieces, "usable_cpus", lambda: 2)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        in_pieces(64, pieces.IN_CACHE, lambda part: np.exp(np.float32([1e4])))


def run(op, *inputs, opset=17, **attrs):
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    model = make_model([helper.make_node(op, list(feeds), ["y"], **attrs)], feeds, opset=opset)
    return run_reference(model, feeds, double=True)["y"]


@pytest.mark.usefixtures("small")
class TestOperators:
    @pytest.mark.parametrize(
        ("shape", "opset", "axis"),
        [
            *(((2, 5, 7), 13, axis) for axis in (-1, 0, 1)),
            *(((2, 5, 7), 11, axis) for axis in (0, 1, 2)),
            ((41,), 11, 0),
            ((61, 1, 3), 13, 2),
        ],
    )
    def test_softmax(self, shape, opset, axis):
        x = RNG.standard_normal(shape).astype(np.float32)
        axes = (axis,) if opset == 13 else tuple(range(axis, x.ndim))
        exponential = np.exp(x.astype(np.float64))
        expected = exponential / exponential.sum(axis=axes, keepdims=True)
        np.testing.assert_allclose(run("Softmax", x, opset=opset, axis=axis), expected, 1e-12)
        logarithm = run("LogSoftmax", x, opset=opset, axis=axis)
        np.testing.assert_allclose(logarithm, np.log(expected), 1e-12)

    def test_softmax_of_no_rows(self):
        assert run("Softmax", np.zeros((0, 3), np.float32)).shape == (0, 3)

    @pytest.mark.parametrize(
        ("channels", "each", "spatial", "kernel"),
        [(17, 1, (5, 6), (3, 2)), (5, 3, (9,), (4,)), (7, 2, (3, 4, 5), (2, 1, 3))],
    )
    def test_depthwise(self, channels, each, spatial, kernel):
        x = RNG.standard_normal((2, channels, *spatial)).astype(np.float32)
        w = RNG.standard_normal((channels * each, 1, *kernel)).astype(np.float32)
        found = run("Conv", x, w, group=channels)
        windows = np.lib.stride_tricks.sliding_window_view(
            x.astype(np.float64), kernel, tuple(range(2, x.ndim))
        )
        for output in range(channels * each):
            seen = windows[:, output // each].reshape(*found.shape[:1], *found.shape[2:], -1)
            np.testing.assert_allclose(found[:, output], seen @ w[output].ravel(), 1e-6, 1e-9)


class TestScatter:
    def test_rows_before_the_beginning_and_beyond_the_end(self):
        x = np.zeros((3, 4, 2), np.float32)
        indices = np.array([[0, 1], [-1, -1], [2, 4], [-4, 0], [0, 1]])
        updates = np.arange(1, 11, dtype=np.float32).reshape(5, 2)
        expected = x.copy()
        expected[0, 1], expected[2, 3] = updates[4], updates[1]
        np.testing.assert_array_equal(run("ScatterND", x, indices, updates), expected)
        added = run("ScatterND", x, indices, updates, reduction="add")
        expected[0, 1] = updates[0] + updates[4]
        np.testing.assert_array_equal(added, expected)

    @pytest.mark.parametrize("as_output", [False, True])
    def test_columns_that_are_put_side_by_side(self, as_output):
        x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
        updates = RNG.standard_normal((1, 2, 3)).astype(np.float32)
        columns = [np.array([[[-1]]]), np.array([[[0], [2]]]), np.array([[[1, 3, -4]]])]
        columns = [np.expand_dims(column, -1) for column in columns]
        names = ["a", "b", "c"]
        nodes = nodes_of(
            "as = Expand(a, shape) bs = Expand(b, shape) cs = Expand(c, shape) "
            "places = Concat<axis = -1>(as, bs, cs) y = ScatterND(x, places, updates)"
        )
        constants = {"shape": np.array([1, 2, 3, 1]), **dict(zip(names, columns, strict=True))}
        outputs = ["y", "places"] if as_output else ["y"]
        feeds = {"x": x, "updates": updates}
        found = run_reference(make_model(nodes, feeds, constants, outputs, opset=17), feeds)
        expected = x.copy()
        expected[1][np.ix_([0, 2], [1, 3, 0])] = updates[0]
        np.testing.assert_array_equal(found["y"], expected)
        if as_output:
            assert found["places"].shape == (1, 2, 3, 3)

    def test_all_and_nothing(self):
        x, y = (RNG.standard_normal((2, 3)).astype(np.float32) for _ in range(2))
        every = np.moveaxis(np.indices((2, 3)), 0, -1)
        np.testing.assert_array_equal(run("ScatterND", x, every, y), y.astype(np.float64))
        none = np.zeros((0, 2), np.int64)
        kept = run("ScatterND", x, none, np.zeros(0, np.float32))
        np.testing.assert_array_equal(kept, x.astype(np.float64))

    def test_fewer_elements_are_gathered_than_exist(self):
        x = RNG.standard_normal((4, 5)).astype(np.float32)
        indices = np.array([[0, -1, 9], [4, 1, -9]])
        expected = [[x[0, 0], x[0, 4], x[0, 4]], [x[1, 4], x[1, 1], x[1, 0]]]
        np.testing.assert_array_equal(run("GatherElements", x, indices, axis=1), expected)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_tensors_one_after_the_other(monkeypatch, axis):
    monkeypatch.setattr("neocpu.frontend.numpy_operators.lookup_operators.LARGE", 9)
    shapes = [[1, 17, 5] for _ in range(3)]
    for shape, extent in zip(shapes, (2, 1, 4), strict=True):
        shape[axis] = extent
    tensors = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = np.concatenate(tensors, axis).astype(np.float64)
    np.testing.assert_array_equal(run("Concat", *tensors, axis=axis), expected)


def test_expanding_broadcasts_both_ways():
    x = np.arange(3, dtype=np.float32).reshape(3, 1)
    for shape in ([3, 1], [2, 1, 4], [1], [1, 3, 2]):
        expected = x * np.ones(shape)
        np.testing.assert_array_equal(run("Expand", x, np.array(shape)), expected)


def test_a_square_is_a_power():
    for x in (np.float32([-3, 1.5]), np.array(-3, np.float32)):
        for exponent in (np.float32(2), np.array([2], np.int64), np.float32(3)):
            found = run("Pow", x, np.asarray(exponent), opset=15)
            expected = np.power(x.astype(np.float64), exponent)
            np.testing.assert_array_equal(found, expected)
            assert found.shape == expected.shape


def test_denormal_numbers_are_found_wherever_they_are():
    tiny = np.finfo(np.float32).tiny
    x = np.ones((3, 40_000), np.float32)
    x[0, :5] = 0, -0.0, tiny, np.nan, -np.inf
    assert _flushed(x) is x
    for value in (tiny / 2, -tiny / 2, np.float32(1e-45)):
        x[2, -1] = value
        for array in (x, x.T, x[::2]):
            flushed = _flushed(array)
            assert (flushed == 0).sum() == 3
            np.testing.assert_array_equal(array == 1, flushed == 1)
