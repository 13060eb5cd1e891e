"""Artifacts list the model's tensors that still exist, and their places."""

import math

import numpy as np
import pytest
import relax_modules
from networks import HOST
from tvm import relax

from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import Dump, begin_build, lower
from neocpu.graph.reordering.absorb_channel_shuffles import ABSORB_CHANNEL_SHUFFLES
from neocpu.ir.model_names import RENAMED, channel_orders
from neocpu.ir.uses import bindings
from neocpu.lowering.values import StoredPlace, StoredValue, of_the_model
from neocpu.plan.model_values import ModelValue, values_in_order
from neocpu.planning.quantised.grids import Grid
from neocpu.runtime.header_parts import Placement
from neocpu.schedules.vocabulary.layout import DataLayout, Format

R = relax.op
RNG = np.random.default_rng(0)


def emitted(bb, value, name):
    return bb.emit(value, name_hint=name)


def two_products(bb, x):
    """Elementwise operators before and after products, where fusion ends."""
    first = emitted(bb, R.nn.relu(x), "within")
    first = emitted(bb, R.exp(first), "before")
    first = emitted(bb, R.matmul(first, relax_modules.const(RNG, 8, 8)), "product")
    first = emitted(bb, R.add(first, relax_modules.const(RNG, 8)), "sum")
    first = emitted(bb, R.reshape(emitted(bb, R.tanh(first), "after"), (4, 8)), "view")
    return bb.emit(R.sum(first, [1]))


NAMES = ("within", "before", "product", "sum", "after", "view", "nowhere")


def test_a_value_that_fusion_leaves_keeps_its_name():
    mod = lower(relax_modules.module(two_products, (2, 2, 8)), HOST, Dump(), NAMES)
    names = [str(binding.var.name) for binding in bindings(mod["main"])]
    assert [name for name in names if name in NAMES] == ["before", "after", "view"]


def test_a_value_of_the_model_has_a_place_in_memory():
    mod = lower(relax_modules.module(two_products, (2, 2, 8)), HOST, Dump(), NAMES)
    with OneAtATime() as generations:
        building = begin_build(mod, HOST, Dump(), generations, names=NAMES)
        with building.kernels:
            places = building.planned.places
    assert places["view"] == places["after"]
    assert (places["before"].calls, places["after"].calls) == (1, 2)
    assert {place.placement.shape for place in places.values()} == {(2, 2, 8)}


def test_reordered_channels_are_reported():
    def body(bb, x):
        names = iter(("a", "a_relu"))
        for _ in range(2):
            x = emitted(bb, R.nn.conv2d(x, relax_modules.const(RNG, 4, 4, 1, 1)), next(names, "y"))
            x = emitted(bb, R.reshape(x, (1, 2, 2, 3, 3)), "split")
            x = emitted(bb, R.permute_dims(x, [0, 2, 1, 3, 4]), "turned")
            x = emitted(bb, R.reshape(x, (1, 4, 3, 3)), "joined")
        return emitted(bb, R.nn.conv2d(x, relax_modules.const(RNG, 5, 4, 1, 1)), "y")

    main = ABSORB_CHANNEL_SHUFFLES(relax_modules.module(body, (1, 4, 3, 3)))["main"]
    values = [
        StoredValue(name=name, variable=name, shape=(1, 4, 3, 3))
        for name in ("a", "joined", "lv3", "gv")
    ]
    orders = channel_orders(main)
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders.values())
    found = {value.name: value.order for value in of_the_model([*values, None], main)}
    assert found == {"a": (), "joined": orders["joined"]}
    assert found["joined"] != (0, 1, 2, 3)
    main = main.with_attr(RENAMED, {"a": "a.b"})
    assert [value.name for value in of_the_model(values, main)] == ["a.b", "joined"]


def stored_value(shape, form=None, **rest):
    return StoredValue(name="a", variable="b", shape=shape, form=form, **rest)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (stored_value((2, 37, 5, 3), Format(DataLayout(16), "float32")), (2, 3, 5, 3, 16)),
        (stored_value((2, 37, 5, 3), Format(DataLayout(1), "float32")), (2, 37, 5, 3)),
        (
            stored_value(
                (1, 5, 1, 1), Format(DataLayout(4), "uint8"), grid=Grid(0.5, 7), error_factor=25.0
            ),
            (1, 2, 1, 1, 4),
        ),
        (stored_value((3, 4)), (12,)),
        (stored_value((1, 3, 2, 1), order=(2, 0, 1)), (1, 3, 2, 1)),
    ],
)
def test_values_survive_json(value, stored):
    dtype = "float32" if value.form is None else value.form.dtype
    described = value.at(StoredPlace(3, Placement(128, dtype, stored)))
    assert described is not None
    assert math.prod(described.stored_shape) == math.prod(stored)
    assert ModelValue.from_json(described.to_json()) == described
    assert values_in_order([described], 3, described.end) == (described,)
    assert value.at(StoredPlace(3, Placement(128, dtype, (*stored, 2)))) is None
    for calls, arena in ((2, described.end), (3, described.end - 1)):
        with pytest.raises(ValueError, match="beyond the arena"):
            values_in_order([described], calls, arena)


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, 3, [], ["a", 1, 0], ["a", -1, 0, "float32", [1]], ["a", 1, 0.5, "float32", [1]]),
        *(["a", 1, 0, "complex64", [1]], ["a", 1, 0, "float32", [1], {"block": 8}]),
        *(["a", 1, 0, "float32", ["1"]], ["a", 1, 0, "float32", [1], {"zero": "x"}]),
        *(["a", 1, 0, "float32", [1, 2], {"order": order}] for order in ([0, 0], [0], 5)),
        ["a", 1, 0, "float32", [2], {"order": [0, 1]}],
    ],
)
def test_broken_json_of_values_is_refused(wrong):
    with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
        ModelValue.from_json(wrong)
