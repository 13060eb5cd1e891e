"""Build small Relax modules, run them, and compare a pass's result with what is expected."""

import numpy as np
import tvm
from tvm import relax

from neocpu.graph.folding.fold_constants import NUMPY_OPS
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import dtype_of, op_name
from neocpu.ir.uses import bindings
from tests.guarded_machine import legalized_machine


def module(body, *shapes, dtype="float32"):
    """Return a module whose ``main`` takes tensors of ``shapes``; ``body(bb, *vars)`` builds it."""
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            result = body(bb, *params)
            if isinstance(result, tuple):
                result = relax.Tuple(list(result))
            output = bb.emit_output(result)
        bb.emit_func_output(output)
    mod = bb.finalize()
    relax.analysis.well_formed(mod)
    return mod


def const(rng, *shape, low=-1.0, high=1.0):
    """Return a random float32 constant."""
    return make_const(rng.uniform(low, high, shape).astype("float32"))


def calls(mod):
    """Return the operator calls of ``main``, in order."""
    values = [binding.value for binding in bindings(mod["main"])]
    return [value for value in values if op_name(value) is not None]


def names(mod):
    """Return the operator names of ``main``, in order, without the ``relax.``."""
    return [op_name(call).removeprefix("relax.") for call in calls(mod)]


def run(mod, *inputs):
    """Legalize, compile and run ``main``; returns a list of arrays."""
    result = legalized_machine(mod)["main"](*[tvm.runtime.tensor(array) for array in inputs])
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [tensor.numpy() for tensor in results]


def assert_same_results(before, after, *, seed=0, rtol=1e-5, atol=1e-5):
    """Both modules are well formed, have one signature, and agree on random inputs."""
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(before["main"].ty, after["main"].ty)
    rng = np.random.default_rng(seed)
    inputs = [
        rng.standard_normal([int(extent) for extent in param.ty.shape.values]).astype("float32")
        for param in before["main"].params
    ]
    for expected, actual in zip(run(before, *inputs), run(after, *inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def applied(rule, body, *shapes, **tolerances):
    """Return a module after a rule; it computes the same as before."""
    before = module(body, *shapes)
    after = rule(before)
    assert_same_results(before, after, **tolerances)
    return after


def assert_unchanged(rule, before):
    """Check that a rule returns the same function object."""
    assert rule(before)["main"].same_as(before["main"])


def evaluate(mod, *inputs):
    """Compute ``main`` with numpy, call by call, and return a list of arrays."""
    main = mod["main"]
    known = dict(zip(main.params, inputs, strict=True))

    def value(expr):
        if isinstance(expr, relax.Tuple):
            return tuple(value(field) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return value(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.ShapeExpr):
            return tuple(int(extent) for extent in expr.values)
        if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm):
            return expr.value
        if op_name(expr) is None:
            return known[expr] if isinstance(expr, tvm.ir.Var) else constant_value(expr)
        result = (NUMPY_OPS | _MORE)[op_name(expr)](expr.attrs, *map(value, expr.args))
        return result if isinstance(expr.ty, relax.TupleType) else result.astype(dtype_of(expr))

    for binding in bindings(main):
        known[binding.var] = value(binding.value)
    result = value(main.body.body)
    return list(result) if isinstance(result, tuple) else [result]


def _padded(attrs, a):
    widths = [int(width) for width in attrs.pad_width]
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if str(attrs.pad_mode) == "constant":
        return np.pad(a, pairs, constant_values=float(attrs.pad_value))
    return np.pad(a, pairs, mode=str(attrs.pad_mode))


def _softmax(attrs, a):
    powers = np.exp(a - a.max(int(attrs.axis), keepdims=True))
    return powers / powers.sum(int(attrs.axis), keepdims=True)


_MORE = {"relax.nn.pad": _padded, "relax.nn.softmax": _softmax}
