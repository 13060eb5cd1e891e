"""Views agree with numpy after the same steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neocpu.schedules.vocabulary.strided_view import StridedView


def array_of(view):
    """Return the indices of the elements that a view selects."""
    flat = np.arange(view.size)
    return flat[np.broadcast_to(view.start(list(np.indices(view.shape))), view.shape)]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_steps_are_those_of_numpy(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    view, array = StridedView.of(shape), np.arange(np.prod(shape)).reshape(shape)
    for _ in range(data.draw(st.integers(1, 4))):
        step = data.draw(st.sampled_from(["permute", "reshape", "slice"]))
        if step == "permute":
            order = data.draw(st.permutations(range(array.ndim)))
            view, array = view.permuted(order), array.transpose(order)
        elif step == "reshape":
            parts = data.draw(st.permutations([*array.shape, 1]))
            parts = [parts[0] * parts[1], *parts[2:]] if array.ndim else parts
            found = view.reshaped(parts)
            if found is None:
                continue
            view, array = found, array.reshape(parts)
        else:
            axis = data.draw(st.integers(0, array.ndim - 1))
            first = data.draw(st.integers(0, array.shape[axis] - 1))
            step = data.draw(st.integers(1, 2))
            extent = len(range(first, array.shape[axis], step))
            found = view.sliced(axis, first, extent, step)
            if found is None:
                continue
            view, array = found, array.take(range(first, array.shape[axis], step), axis)
        np.testing.assert_array_equal(array_of(view), array)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_inverse_undoes_a_view(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    made = np.arange(np.prod(shape)).reshape(shape).transpose(order)
    inverse = StridedView.of(shape).permuted(order).inverse(shape)
    assert inverse is not None
    np.testing.assert_array_equal(made.reshape(-1)[array_of(inverse)].reshape(shape),
                                  np.arange(np.prod(shape)).reshape(shape))  # fmt: skip


def test_merged_axes_that_are_not_contiguous_are_not_regular():
    view = StridedView.of((2, 3, 5)).permuted((1, 0, 2)).reshaped((6, 5))
    assert view is not None
    assert not view.is_regular(0)
    assert view.is_regular(1)
    assert view.sliced(0, 1, 2) is None
    assert view.reshaped((3, 2, 5)) == StridedView.of((2, 3, 5)).permuted((1, 0, 2))


def test_a_reshape_that_needs_a_copy_is_no_view():
    turned = StridedView.of((4, 6)).permuted((1, 0))
    assert turned.reshaped((8, 3)) is None
    assert turned.broadcast((4,)) is None
    assert turned.broadcast((2, 3, 4)) is None


@pytest.mark.parametrize(
    ("shape", "to"), [((1, 3), (2, 3)), ((3,), (2, 3)), ((2, 1, 5), (2, 4, 5))]
)
def test_broadcast_axes_have_no_step(shape, to):
    view = StridedView.of(shape).broadcast(to)
    assert view is not None
    array = np.broadcast_to(np.arange(np.prod(shape)).reshape(shape), to)
    np.testing.assert_array_equal(array_of(view), array)
