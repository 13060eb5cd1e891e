"""Small helpers that every Relax pass shares: constants, shapes, uses, and one rewriting walk.

A pass here is a *rule*, a function that looks at one call and returns its replacement, or ``None``
when it does not apply. `rewrite_function` walks the function once in program order, keeps the
definitions and use counts the rules ask for, substitutes what was replaced and drops what nothing
uses any more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Call, GenericConst, Op, Var

from neocpu.runtime.aligned_memory import aligned_empty

Array: TypeAlias = npt.NDArray[Any]
#: TVM is untyped; these names say what is meant.
Expr: TypeAlias = Any

#: TVM's kernels use aligned vector loads on constants (``kAllocAlignment``).
CONSTANT_ALIGNMENT = 64

#: Operators whose results are the values of what they read first, in another shape or order.
SHAPING = (
    "relax.expand_dims",
    "relax.flatten",
    "relax.permute_dims",
    "relax.reshape",
    "relax.squeeze",
)

#: Rules within rules: Python's own limit is a hundred and fifty of them.
MOST_NESTED = 100

#: TVM's ``OpPatternKind::kOpaque``: FuseOps leaves a function of this ``op_pattern`` alone.
OPAQUE = 8


def is_op(expr: Expr, *names: str) -> bool:
    """Whether ``expr`` is a call of one of the named operators, such as ``relax.nn.conv2d``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in names


def op_name(expr: Expr) -> str | None:
    """Return the operator's name if ``expr`` calls a TVM operator, else ``None``."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else None


def constant_value(expr: Expr) -> Array | None:
    """Return a tensor constant's value without copying it, or ``None`` for any other expression.

    The array shares the constant's memory: treat it as read-only.
    """
    if not isinstance(expr, GenericConst):
        return None
    try:
        array = np.from_dlpack(expr.value)
    except (BufferError, RuntimeError):  # bfloat16, float8: numpy's DLPack has no such type
        array = expr.value.numpy()
    array.flags.writeable = False
    return array


def number_of(expr: Expr) -> float | None:
    """Return the value of a constant of one element, or ``None`` for any other expression."""
    value = constant_value(expr)
    return float(value.item()) if value is not None and value.size == 1 else None


def make_const(array: npt.ArrayLike) -> GenericConst:
    """Return ``array`` as a Relax constant of the same shape and dtype (float64 stays float64).

    A contiguous, writeable array aligned to `CONSTANT_ALIGNMENT` bytes is wrapped, not copied, so
    the caller must not write to it afterwards (`aligned_empty` makes such arrays, for ``out=`` of
    numpy's operations); any other array is copied once.
    """
    array = np.asarray(array)
    aligned = array.ctypes.data % CONSTANT_ALIGNMENT == 0
    if not (aligned and array.flags.c_contiguous and array.flags.writeable):
        copy = aligned_empty(array.shape, array.dtype)
        copy[...] = array
        array = copy
    try:
        tensor = tvm_ffi.from_dlpack(array)
    except (BufferError, RuntimeError):
        tensor = tvm.runtime.tensor(array)
    return relax.const(tensor)


def static_shape(expr: Expr) -> tuple[int, ...] | None:
    """Return a tensor expression's shape, or ``None`` if it is no tensor or not static."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return None
    return shape_values(ty.shape)


def shape_values(expr: Expr) -> tuple[int, ...] | None:
    """Return the integers of a static ``ShapeExpr``, or ``None``."""
    return _shape_values(expr) if isinstance(expr, relax.ShapeExpr) else None


@lru_cache(maxsize=1 << 16)  # TVM takes microseconds to say, and is asked again and again
def _shape_values(expr: relax.ShapeExpr) -> tuple[int, ...] | None:
    values = tuple(expr.values)
    if not all(isinstance(value, tvm.tirx.IntImm) for value in values):
        return None
    return tuple(int(value) for value in values)


def dtype_of(expr: Expr) -> str:
    """Return a tensor expression's dtype as a string, such as ``float32``."""
    return str(expr.ty.dtype.dtype)


def has_type_of(data: Expr, call: Expr) -> bool:
    """Whether two tensor expressions have the same element type and the same static shape."""
    shape = static_shape(call)
    return shape is not None and static_shape(data) == shape and dtype_of(data) == dtype_of(call)


def channel_slice(call: Call) -> tuple[int, int] | None:
    """Return the first channel of a slice of consecutive channels, and the one after its last."""
    source, shape = static_shape(call.args[0]), static_shape(call)
    if not isinstance(call.args[0], Var) or source is None or shape is None or len(source) != 4:
        return None
    if len(call.args) > 4 and any(int(step.value) != 1 for step in call.args[4].fields):
        return None
    if [int(axis.value) for axis in call.args[1].fields] != [1]:
        return None
    first = int(call.args[2].fields[0].value)
    first = max(first + source[1], 0) if first < 0 else first
    return first, first + shape[1]


def bindings(func: relax.Function) -> Iterator[Any]:
    """Yield the bindings of ``func`` in program order."""
    for block in func.body.blocks:
        yield from block.bindings


def used_vars(value: Expr) -> Iterator[Var]:
    """Yield every variable ``value`` reads, once per occurrence."""
    if isinstance(value, Var):
        yield value
    elif isinstance(value, Call):
        for arg in value.args:
            yield from used_vars(arg)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from used_vars(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from used_vars(value.tuple_value)
    elif not isinstance(value, GenericConst | relax.ShapeExpr):
        yield from relax.analysis.free_vars(value)


def count_uses(func: relax.Function) -> dict[Var, int]:
    """Count the reads of every variable that the function's result depends on.

    A variable without an entry is dead. The result itself counts as one use.
    """
    uses: dict[Var, int] = {}
    for var in used_vars(func.body.body):
        uses[var] = uses.get(var, 0) + 1
    for block in reversed(func.body.blocks):
        pure = isinstance(block, relax.DataflowBlock)
        for binding in reversed(block.bindings):
            if pure and binding.var not in uses and isinstance(binding, relax.VarBinding):
                continue
            uses.setdefault(binding.var, 0)
            for var in used_vars(binding.value):
                uses[var] = uses.get(var, 0) + 1
    return uses


def consumers(func: relax.Function) -> dict[Var, list[Var]]:
    """Map every variable to the variables whose definitions read it, in program order.

    A consumer that reads a variable twice is listed twice. Parameters and dead bindings included.
    """
    readers: dict[Var, list[Var]] = {param: [] for param in func.params}
    for binding in bindings(func):
        readers.setdefault(binding.var, [])
        for var in used_vars(binding.value):
            readers.setdefault(var, []).append(binding.var)
    return readers


def definitions(func: relax.Function) -> dict[Var, Expr]:
    """Map every bound variable to its value."""
    return {binding.var: binding.value for binding in bindings(func)}


class Rewrite:
    """What a rule may ask about, and add to, the function being rewritten."""

    def __init__(self, func: relax.Function, rule: Rule) -> None:
        self._rule = rule
        self._builder: Any = None
        self._definitions: dict[Var, Expr] = {}
        self._variables: dict[Expr, Var] = {}
        self._func = func
        self.changed = False
        self._nested = 0
        #: The variable whose value is being rewritten.
        self.current: Var | None = None
        #: What rules that compare expressions have met so far, by keys of their own.
        self.met: dict[Hashable, Expr] = {}

    @cached_property
    def _uses(self) -> dict[Var, int]:
        return count_uses(self._func)

    @cached_property
    def _readers(self) -> dict[Var, list[tuple[Var, Expr]]]:
        values = definitions(self._func)
        return {
            var: [(reader, values[reader]) for reader in readers]
            for var, readers in consumers(self._func).items()
        }

    def readers(self, var: Var | None) -> list[tuple[Var, Expr]]:
        """Return the variables whose values read one, and these, as they were before this walk."""
        return self._readers.get(var, [])

    @cached_property
    def reads_all(self) -> bool:
        """Whether any binding may read any earlier one: a dataflow block reads no other's."""
        return len(self._func.body.blocks) == 1

    def definition(self, expr: Expr) -> Expr:
        """Return the rewritten value ``expr`` is bound to, or ``expr`` if it is no bound variable.

        Constants, parameters and nested expressions come back unchanged.
        """
        return self._definitions.get(expr, expr) if isinstance(expr, Var) else expr

    @property
    def definitions(self) -> Mapping[Var, Expr]:
        """What variables are bound to, of those that this walk has come by."""
        return self._definitions

    def sole_definition(self, expr: Expr) -> Expr | None:
        """Return `definition` if ``expr`` is a bound variable that is read only once."""
        if not isinstance(expr, Var) or self._uses.get(expr, 1) != 1:
            return None
        return self._definitions.get(expr)

    def variable(self, value: Expr) -> Var | None:
        """Return the variable bound to ``value``, an expression this walk has left in place."""
        return self._variables.get(value)

    def emit(self, expr: Expr) -> Expr:
        """Bind ``expr``, after applying the rule to it, and return the variable (or leaf).

        What is emitted while a rule is applied to what was, and so on, is left to the next walk
        once it is `MOST_NESTED` deep: a slice moves in front of any number of operators.
        """
        expr = self._builder.normalize(expr)
        if self._nested < MOST_NESTED:
            self._nested += 1
            expr = self.apply(expr)
            self._nested -= 1
        if _is_leaf(expr):
            return expr
        var = self._builder.emit(expr)
        self._bind(var, expr)
        return var

    def _bind(self, var: Var, value: Expr) -> None:
        self._definitions[var] = value
        self._variables[value] = var

    def apply(self, expr: Expr) -> Expr:
        """Apply the rule to ``expr`` until it no longer applies."""
        while isinstance(expr, Call | relax.TupleGetItem):
            replacement = self._rule(expr, self)
            if replacement is None:
                break
            self.changed = True
            expr = self._builder.normalize(replacement)
        return expr


Rule: TypeAlias = Callable[[Expr, Rewrite], Expr | None]


def _is_leaf(expr: Expr) -> bool:
    return isinstance(expr, Var | GenericConst | relax.ShapeExpr)


@relax.expr_functor.mutator
class _RuleMutator(relax.PyExprMutator):  # type: ignore[misc]
    """Visits the bindings in order and hands each call and tuple access to the rule."""

    def __init__(self, rewrite: Rewrite) -> None:
        super().__init__()
        self._rewrite = rewrite
        self._rewrite._builder = self.builder_
        self._replaced: dict[Var, Expr] = {}
        self._retyped = False

    def visit_var_(self, op: Var) -> Expr:
        return self._replaced.get(op, op)

    def visit_dataflow_var_(self, op: Var) -> Expr:
        return self._replaced.get(op, op)

    def visit_call_(self, op: Call) -> Expr:
        if self._retyped:
            return self._rewrite.apply(self.builder_.normalize(super().visit_call_(op)))
        args = [self.visit_expr(arg) for arg in op.args]
        if not all(map(Call.same_as, args, op.args)):
            # The types of the arguments are what they were, so inference would find the same type.
            op = Call(op.op, args, op.attrs, op.ty_args, ret_ty=op.ty)
        return self._rewrite.apply(op)

    def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> Expr:
        return self._rewrite.apply(self.builder_.normalize(super().visit_tuple_getitem_(op)))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var = self._rewrite.current = binding.var
        value = self.visit_expr(binding.value)
        if _is_leaf(value) and isinstance(var, relax.DataflowVar):
            self._replaced[var] = value
            # The types of tensors may depend on a shape: sharpen them.
            self._retyped |= isinstance(value, relax.ShapeExpr)
            if isinstance(value, Var):
                uses = self._rewrite._uses
                uses[value] = uses.get(value, 0) + uses.get(var, 0)
            return
        typed = var
        if not value.same_as(binding.value) and not tvm_ffi.structural_equal(value.ty, var.ty):
            typed = self.with_type(var, value.ty)
            self._replaced[var] = typed
            self._retyped = True
            self._rewrite._uses[typed] = self._rewrite._uses.get(var, 0)
        self.builder_.emit_normalized(relax.VarBinding(typed, value))
        self._rewrite._bind(typed, value)


def rewrite_function(func: relax.Function, rule: Rule) -> relax.Function:
    """Apply ``rule`` to every call and tuple access of ``func``, in program order, once.

    Parameters
    ----------
    func : relax.Function
        In A-normal form, as every Relax pass leaves it.
    rule : callable
        ``rule(expr, rewrite)`` returns the replacement, or ``None`` if it does not apply. The
        arguments of ``expr`` are already rewritten. A replacement is offered to the rule again,
        and so is everything it emits.

    Returns
    -------
    relax.Function
        ``func`` itself if the rule never applied, else a new function without dead bindings.
    """
    rewrite = Rewrite(func, rule)
    rewritten = _RuleMutator(rewrite).visit_expr(func)
    return relax.analysis.remove_all_unused(rewritten) if rewrite.changed else func


def feature_map_shape(expr: Expr) -> tuple[int, int, int, int] | None:
    """Return the NCHW shape of a float32 rank-4 tensor expression, else None."""
    if not isinstance(expr.ty, relax.TensorType) or dtype_of(expr) != "float32":
        return None
    shape = static_shape(expr)
    if shape is None or len(shape) != 4:
        return None
    n, c, h, w = shape
    return n, c, h, w


def is_tensor(expr: Expr) -> bool:
    """Whether an expression is one tensor: no tuple, shape or number."""
    return isinstance(expr.ty, relax.TensorType)


def permutation_of(call: Call) -> tuple[int, ...]:
    """Return the axes of a ``permute_dims``, none below zero."""
    rank, axes = int(call.ty.ndim), call.attrs.axes
    if axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in axes)


def with_rank(constant: Array, rank: int) -> Array:
    """Return a constant with as many dimensions as what it is broadcast to has."""
    return constant.reshape((1,) * (rank - constant.ndim) + constant.shape)


def vector_along(constant: Array, rank: int, axis: int) -> Array | None:
    """Return a constant that varies along one axis of a tensor alone as ``(C,)``, or ``(1,)``.

    None if it varies along others, or has more dimensions than the tensor.
    """
    if constant.ndim > rank:
        return None
    if constant.size != 1 and with_rank(constant, rank).shape[axis] != constant.size:
        return None
    return constant.reshape(constant.size)


def summed(terms: Sequence[Expr], rewrite: Rewrite) -> Expr:
    """Return the sum of one term or more, added up in order; all but the last sum is bound."""
    total, *rest = terms
    for number, term in enumerate(rest, 1):
        total = relax.op.add(total, term)
        if number < len(rest):
            total = rewrite.emit(total)
    return total


def reduced_axes(call: Call) -> list[int] | None:
    """Return over which axes a reduction is, rising and none below zero; None if that is not said.

    One that names none is over all of them.
    """
    shape, axes = static_shape(call.args[0]), call.attrs.axis
    if shape is None or axes is None:
        return None
    return sorted(int(axis) % len(shape) for axis in axes)


def integers_of(values: Any) -> list[int]:
    """Return an attribute of several numbers."""
    return [int(value) for value in values]


def pair_of(values: Any) -> tuple[int, int]:
    """Return an attribute of two numbers."""
    first, second = (int(v) for v in values)
    return first, second


def four_of(values: Any) -> tuple[int, int, int, int]:
    """Return padding as four numbers: one may stand for all."""
    numbers = [int(v) for v in values]
    top, left, bottom, right = numbers if len(numbers) == 4 else (numbers * 4)[:4]
    return top, left, bottom, right
