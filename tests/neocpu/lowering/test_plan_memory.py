"""Every tensor has a place, concatenations need no kernel, and results stay the same."""

import math
import zlib

import numpy as np
import pytest
import relax_modules
import tvm
from concatenations import SHAPE, concat, exp, lowered, twice
from networks import HOST, IMAGE, build, cost_model, executable, run
from tvm import relax

from neocpu.building.pipeline import Dump, call_kernels, lower
from neocpu.foundation.errors import UnsupportedError
from neocpu.ir.expressions import is_op, static_shape
from neocpu.ir.uses import bindings
from neocpu.lowering.memory.plan_memory import plan_memory
from neocpu.planning.choice import IN_PLACE
from neocpu.planning.extract import extract
from neocpu.planning.operators.concat_ops import ConcatOp
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts


def chain(net, x):
    """A DenseNet's: each concatenation is the beginning of the next."""
    y = exp(net, x)
    for _ in range(3):
        y = concat(net, y, net.emit(relax.op.tanh(y)))
    return y


def of_inputs(net, x):
    """An input cannot be written to; the other part can."""
    return concat(net, x, exp(net, x))


def read_elsewhere(net, x):
    """Parts have readers before and after the concatenation, and are results."""
    y = exp(net, x)
    z = net.emit(relax.op.tanh(y))
    joined = concat(net, y, z)
    late = net.emit(relax.op.subtract(y, net.emit(relax.op.nn.max_pool2d(z))))
    return net.emit(relax.Tuple([late, z, joined, net.emit(relax.op.exp(joined))]))


def long_lived(net, x):
    """A U-Net's skip connection: between its parts, other tensors come and go."""
    skip = exp(net, x)
    y = skip
    for _ in range(4):
        y = net.emit(relax.op.nn.max_pool2d(y, (3, 3), padding=(1, 1)))
    return concat(net, skip, y)


def reshaped(net, x):
    """The same bytes have another shape before and after the concatenation."""
    n, c, h, w = SHAPE
    flat = net.emit(relax.op.reshape(exp(net, x), (n, c * h * w)))
    soft = net.emit(relax.op.nn.softmax(flat, -1))
    back = net.emit(relax.op.reshape(soft, (n, c, h, w)))
    return net.emit(relax.op.reshape(concat(net, back, exp(net, back)), (n, 2 * c * h * w)))


def sliced(net, x):
    """Slices of a part of a concatenation, one of them another's, and a slice of an input."""
    y = exp(net, x)
    later = net.emit(relax.op.strided_slice(y, [1], [8], [16]))
    whole = concat(net, y, net.emit(relax.op.tanh(later)))
    first = net.emit(relax.op.strided_slice(x, [1], [8], [16]))
    again = concat(net, later, net.emit(relax.op.nn.max_pool2d(later)), first)
    return net.emit(relax.Tuple([later, whole, exp(net, again), exp(net, first)]))


# Per network, the calls of concatenations and of copies that are left.
JOINS = {
    chain: [],
    of_inputs: ["copy"],
    # All parts of the second concatenation are in the first already.
    twice: ["copy", "concat_0"],
    read_elsewhere: [],
    long_lived: [],
    reshaped: [],
    # A slice cannot be a part as well.
    sliced: ["copy"],
}


def planned(mod):
    return plan_memory(call_kernels(mod), HOST, {})


def calls(mod):
    values = [binding.value for binding in bindings(mod["main"])]
    called = [value.op for value in values if isinstance(value, tvm.ir.Call)]
    return [op.name_hint for op in called if isinstance(op, tvm.ir.GlobalVar)]


def joins(mod):
    return [name for name in calls(mod) if name.startswith(("concat", "copy"))]


@pytest.mark.parametrize("body", JOINS, ids=lambda body: body.__name__)
def test_parts_are_written_where_they_belong(body):
    mod, low, weights = lowered(body, SHAPE)
    assert joins(planned(low).mod) == JOINS[body]
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    got = run(executable(low), x, *weights)
    for one, other in zip(got, relax_modules.run(mod, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("body", JOINS, ids=lambda body: body.__name__)
def test_the_search_charges_copies(body):
    mod = build(body, SHAPE)
    plan = plan_layouts(extract(mod), cost_model(), OptLevel.NCHW)
    concats = [
        choice
        for op, choice in zip(plan.network.ops, plan.choices, strict=True)
        if isinstance(op, ConcatOp)
    ]
    assert concats
    assert all((choice.seconds > 0) == (choice.source != IN_PLACE) for choice in concats)
    # Each of these networks copies in no concatenation, in one, or in both.
    assert sum(choice.seconds > 0 for choice in concats) == len(JOINS[body])


def test_results_of_another_shape_are_views():
    _, low, _ = lowered(reshaped, SHAPE)
    assert any(var.name_hint.startswith("reshape") for var in low.get_global_vars())
    assert not any(name.startswith("reshape") for name in calls(planned(low).mod))


def test_kernels_that_nothing_calls_are_gone():
    for body in (chain, reshaped):
        _, low, _ = lowered(body, SHAPE)
        names = {var.name_hint for var in planned(low).mod.get_global_vars()}
        assert not any(name.startswith(("concat", "reshape")) for name in names)
        assert any(var.name_hint.startswith("concat") for var in low.get_global_vars())


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((2, 16, 6, 6), id="more than one image"),
        pytest.param((1, 3, 5, 7), id="parts that begin at odd addresses"),
    ],
)
def test_parts_that_do_not_lie_end_to_end_are_copied(shape):
    _, low, _ = lowered(of_inputs, shape)
    assert joins(planned(low).mod) == ["concat_0"]


def test_programs_that_do_more_than_call_kernels_are_refused():
    def body(net, x):
        y = net.emit(relax.op.exp(x))
        held = net.emit(
            relax.call_pure_packed(
                "vm.builtin.copy", y, ty_args=[relax.TensorType(SHAPE, "float32")]
            )
        )
        return net.emit(relax.op.add(net.emit(relax.op.exp(held)), y))

    low = lower(build(body, SHAPE), HOST, Dump())
    with pytest.raises(UnsupportedError, match="does more than call kernels"):
        executable(low)


def test_elements_that_modules_do_not_hold_stay_with_the_machine():
    def body(net, x):
        rounded = net.emit(relax.op.astype(net.emit(relax.op.nn.max_pool2d(x)), "float8_e4m3fn"))
        turned = net.emit(relax.op.permute_dims(rounded, (0, 2, 3, 1)))
        return net.emit(relax.op.astype(turned, "float32"))

    _, low, _ = lowered(body, SHAPE)
    after = planned(low)
    assert after.activations
    assert {placement.dtype for placement in after.activations} == {"float32"}
    assert any("float8_e4m3fn" in str(function) for function in low.functions.values())


def test_no_more_memory_than_tvm_plans():
    """The plan takes less memory if sizes differ, because TVM reuses whole tensors."""

    def pyramid(net, x):
        y = x
        for channels in (24, 40, 8, 64, 12):
            y = net.relu(net.conv(y, channels))
        return y

    _, low, _ = lowered(pyramid, IMAGE)
    ours = planned(low).arena_bytes
    passes = [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
    ]
    theirs = tvm.transform.Sequential(passes)(low)["main"]
    stores = [b.value for b in bindings(theirs) if "alloc_storage" in str(b.value)]
    assert 0 < ours < sum(int(store.args[0].values[0]) for store in stores)


def random_network(seed):
    """Tensors that are concatenated, reshaped, read late and returned, in any order."""
    rng = np.random.default_rng(seed)

    def body(net, x):
        found = [x]

        def any_of(tensors):
            return tensors[int(rng.integers(max(0, len(tensors) - 6), len(tensors)))]

        for _ in range(25):
            y = any_of(found)
            n, c, h, w = (int(d) for d in y.ty.shape)
            kind = rng.choice(["pool", "concat", "concat", "add", "reshape"])
            if kind == "pool":
                y = net.emit(relax.op.nn.max_pool2d(y, (3, 3), padding=(1, 1)))
            elif kind == "concat" and c < 200:
                parts = [y, *(any_of(found) for _ in range(int(rng.integers(1, 4))))]
                y = concat(net, *parts)
            elif kind == "add":
                equal = [t for t in found if int(t.ty.shape[1]) == c]
                y = net.emit(relax.op.add(y, any_of(equal)))
            elif kind == "reshape":
                flat = net.emit(relax.op.reshape(y, (n, c * h * w)))
                soft = net.emit(relax.op.nn.softmax(flat, -1))
                y = net.emit(relax.op.reshape(soft, (n, c, h, w)))
            found.append(y)
        results = {id(t): t for t in (found[-1], any_of(found[1:]), any_of(found[1:]))}
        return net.emit(relax.Tuple(list(results.values())))

    return body


class Interpreter:
    """Runs ``main`` on bytes: a concatenation joins them, any other kernel scrambles them."""

    def __init__(self, mod, parameters):
        self._mod = mod
        self._values = dict(zip(mod["main"].params, parameters, strict=True))

    def run(self):
        for binding in bindings(self._mod["main"]):
            self._values[binding.var] = self._value(binding.value)
        result = self._value(self._mod["main"].body.body)
        return [bytes(one) for one in (result if isinstance(result, list) else [result])]

    def _value(self, expr):
        if isinstance(expr, relax.Tuple):
            return [self._value(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value)[expr.index]
        if not isinstance(expr, tvm.ir.Call):
            return self._values[expr]
        if is_op(expr, "relax.builtin.alloc_tensor"):
            return np.zeros(4 * math.prod(static_shape(expr)), np.uint8)
        if is_op(expr, "relax.reshape"):
            return self._value(expr.args[0])
        *read, written = [self._value(arg) for arg in expr.args]
        data = np.concatenate(read)
        if not expr.op.name_hint.startswith(("concat", "copy")):
            seed = zlib.crc32(data.tobytes(), zlib.crc32(expr.op.name_hint.encode()))
            data = np.random.default_rng(seed).integers(0, 256, written.size, np.uint8)
        written[:] = data
        return None


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_compute_the_same_after_memory_planning(seed):
    _, low, weights = lowered(random_network(seed), SHAPE)
    assert not weights
    before, after = call_kernels(low), planned(low)
    assert set(joins(after.mod)) != set(joins(before))
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, 4 * math.prod(SHAPE), np.uint8)
    arena = rng.integers(0, 256, after.arena_bytes, np.uint8)  # as the last run left it
    views = [arena[p.offset :][: 4 * math.prod(p.shape)] for p in after.activations]
    assert all(p.offset % 64 == 0 for p in after.activations)
    expected = Interpreter(before, [x]).run()
    assert Interpreter(after.mod, [x, *views]).run() == expected
