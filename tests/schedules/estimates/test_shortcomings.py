"""Kernels' shortcomings are found and priced, and unavoidable ones have a reason."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from neocpu.schedules.estimates import shortcomings as known
from neocpu.schedules.estimates.shortcomings import Shortcoming, is_register_tile, shortcomings
from neocpu.schedules.estimates.work_count import count_work
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.vocabulary.target_parsing import parse_target

TARGET = parse_target("llvm -mcpu=znver4")
SHAPE = (1, 8, 56, 56, 16)


def lacking(function, scheduled=True):
    made = schedule_function(function, TARGET) if scheduled else function
    return {each.kind: each for each in shortcomings(made, count_work(made, TARGET))}


def elementwise(emit, shape=SHAPE, dtype="float32"):
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, te.compute(shape, lambda *i: emit(x(*i)), name="y")])


def opaque():
    """Return a stage that calls an opaque function."""
    return elementwise(lambda x: tirx.call_pure_extern("float32", "sinf", x))


def nested():
    """Return a chain that is too long for one expression."""

    def exponential(of, name):
        return te.compute(SHAPE, lambda *i: tirx.exp(of(*i)), name=name)

    x = y = te.placeholder(SHAPE, name="x")
    for number in range(6):
        y = exponential(y, f"exp{number}")
    return te.create_prim_func([x, y])


def transposed():
    x = te.placeholder((512, 384), name="x")
    return te.create_prim_func([x, te.compute((384, 512), lambda i, j: x[j, i] * 2.0, name="y")])


def looked_up():
    x = te.placeholder((512, 384), name="x")
    at = te.placeholder((60000,), "int32", name="at")
    return te.create_prim_func([x, at, te.compute((60000,), lambda i: x[at[i], 3], name="y")])


def test_a_chain_lacks_nothing():
    assert not lacking(elementwise(lambda x: tirx.max(x * 2.0, 0.0)))


def test_functions_that_the_schedule_refuses_give_a_reason():
    found = lacking(opaque())
    assert found[known.NO_SCHEDULE].detail == "its stage y is no plain computation"
    assert not found[known.NO_SCHEDULE].reason


def test_a_stage_as_it_stands_has_one_thread_and_no_vectors():
    found = lacking(elementwise(lambda x: tirx.max(x * 2.0, x)), scheduled=False)
    assert found[known.ONE_THREAD].detail == "no parallel loop"


def test_workspaces_as_large_as_a_map_are_seen_as_tvm_makes_them():
    space = lacking(nested())[known.WORKSPACE]
    assert space.size == 4 * 8 * 56 * 56 * 16
    x = te.placeholder((512, 384), name="x")
    j = te.reduce_axis((0, 384), name="j")
    largest = te.compute((512,), lambda i: te.max(x[i, j], axis=j), name="largest")
    power = te.compute(x.shape, lambda i, j: tirx.exp(x[i, j] - largest[i]), name="power")
    k = te.reduce_axis((0, 384), name="k")
    total = te.compute((512,), lambda i: te.sum(power[i, k], axis=k), name="total")
    y = te.compute(x.shape, lambda i, j: power[i, j] / total[i], name="y")
    assert known.WORKSPACE not in lacking(te.create_prim_func([x, y])), "a row of it at a time"


def test_unscheduled_reductions_are_analysed():
    """The initial values of such reductions are still part of their blocks."""
    x = te.placeholder((512, 384), name="x")
    k = te.reduce_axis((0, 384), name="k")
    total = te.compute((512,), lambda i: te.sum(x[i, k], axis=k), name="total")
    y = te.compute((512,), lambda i: tirx.sqrt(total[i]), name="y")
    assert known.ONE_THREAD in lacking(te.create_prim_func([x, y]), scheduled=False)


@pytest.mark.parametrize(
    ("made", "kind", "detail", "has_reason"),
    [
        (transposed, "gather", known.STRIDED, False),
        (looked_up, "gather", known.BY_DATA, True),
        (lambda: elementwise(tirx.tan), "library calls", "tan", True),
    ],
)
def test_hot_loops_without_vectors_are_named(made, kind, detail, has_reason):
    found = lacking(made())[kind]
    assert found.detail == detail
    assert bool(found.reason) == has_reason


def test_kernels_that_take_no_time_have_no_shortcomings():
    x = te.placeholder((8, 8), name="x")
    transpose = te.create_prim_func([x, te.compute((8, 8), lambda i, j: x[j, i] * 2.0, name="y")])
    assert not lacking(transpose)


@pytest.mark.parametrize("made", [opaque, nested, transposed, looked_up])
def test_every_shortcoming_has_a_price_and_is_stored_as_numbers(made):
    function = schedule_function(made(), TARGET)
    work = count_work(function, TARGET)
    found = shortcomings(function, work)
    assert found
    for each in found:
        assert each.seconds(work, TARGET, 2) > 0
        assert Shortcoming.of_json(each.to_json()) == each


def test_register_tiles_are_known_by_their_names():
    assert all(map(is_register_tile, ("conv2d_17", "dense_0", "lstm", "gru1", "attention_2")))
    assert not any(
        map(is_register_tile, ("pool_1", "fused_conv2d_add", "transform_NCHW_to_NCHW8c"))
    )
