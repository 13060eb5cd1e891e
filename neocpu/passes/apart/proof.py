"""Whether the rows of a batch are computed apart from each other, and what is computed of one.

Of each tensor that differs from row to row it is followed where it has the rows; an operator that
is not known to keep them apart ends the proof. Plans for several batches may be put together if
they compute the same of a row: so that this can be seen, the computation of one row has a digest,
which does not depend on how many there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Call, GenericConst, GlobalVar, Var

from neocpu.ir.array_digests import ArrayDigests
from neocpu.ir.attributes import permutation_of
from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import Expr, is_op, op_name, shape_values
from neocpu.ir.recurrent_calls import LAYER, layer_workload
from neocpu.ir.uses import bindings
from neocpu.passes.apart.kernel_rows import KernelRows, Packed
from neocpu.passes.apart.operators import RULES, cut_axes, is_elementwise
from neocpu.passes.apart.part import MixedError, Part, Shape, find_part
from neocpu.passes.apart.picked import (
    Counted,
    Picked,
    offsets,
    picked_boxes,
    reshaped,
)
from neocpu.passes.apart.picked_rules import Found, follow_picked
from neocpu.passes.apart.site import Site, of_one_row

VIEWS: Final = ("relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze")
"""Operators whose results have the same elements in the same order."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What is known of the rows of a batch.

    Attributes
    ----------
    function : str or None
        A digest of what is computed of each, whatever the others are, and however many.
    mixed : str or None
        Why nothing is known: the operator that may mix them.
    numbered : tuple
        Of each output the elements of a row, in C order, that have the number of the batch's row
        in them, and its factor: of what a NonMaxSuppression selects, the image. Empty if no output
        has any.
    """

    function: str | None = None
    mixed: str | None = None
    numbered: tuple[tuple[tuple[int, int], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor, and what is computed in it.

    Attributes
    ----------
    digest : str
        Of what is computed of one row of it, in C order.
    found : Found
        Where it has the rows, or what a run has found of them; None of what is the same for all.
    shape, of_one : tuple of int
        Of all rows, and of one.
    """

    digest: str
    found: Found
    shape: Shape
    of_one: Shape


_Value: TypeAlias = "_Tensor | tuple[_Value, ...]"


def prove_apart(
    mod: tvm.IRModule,
    row_counts: Sequence[int | None] = (),
    *,
    together: bool = True,
    digests: ArrayDigests | None = None,
) -> Rows:
    """Return what is known of the rows that a model's inputs have in their first axis.

    Parameters
    ----------
    mod : tvm.IRModule
        Simplified: of static shapes, weights as constants.
    row_counts : sequence of int or None
        As `LoadedModel` has them.
    together : bool
        Whether other batches are compiled too: else of one row there is nothing to know.
    digests : ArrayDigests, optional
        Of the constants, for who asks for them again.
    """
    if not together and all(_shape(param.ty)[:1] == (1,) for param in mod["main"].params):
        return Rows()
    try:
        return _Proof(mod, digests or ArrayDigests()).rows(row_counts)
    except MixedError as error:
        return Rows(mixed=str(error))


class _Proof:
    """The walk through a module."""

    def __init__(self, mod: tvm.IRModule, digests: ArrayDigests) -> None:
        self._mod, self._digests = mod, digests
        self._known: dict[Var, _Value] = {}
        params = mod["main"].params
        extents = {_shape(param.ty)[:1] for param in params}
        if len(extents) != 1 or not extents.isdisjoint({(), (0,)}):
            raise MixedError("inputs have no first axis of the same extent")
        ((self._rows,),) = extents
        part = Part(0) if self._rows > 1 else None  # one row alone is not followed
        for number, param in enumerate(params):
            digest = _hash("input", number, str(param.ty.dtype))
            self._known[param] = self._tensor(digest, part, _shape(param.ty))

    def rows(self, row_counts: Sequence[int | None]) -> Rows:
        """Return what is known if rows are apart.

        Raises
        ------
        MixedError
            If that is not seen.
        """
        main = self._mod["main"]
        for binding in bindings(main):
            try:
                self._known[binding.var] = self._of(binding.value)
            except MixedError as error:
                called = _called(binding.value)
                raise MixedError(f"{called} '{binding.var.name}' {error}") from None
        results = [*_flat(self._of(main.body.body))]
        numbered = []
        for number, count in zip_longest(range(len(results)), row_counts):
            numbered.append(self._numbered(number, results, count))
        function = _hash(*((tensor.digest, tensor.of_one) for tensor in results))
        numbered = numbered[: len(row_counts)]
        return Rows(function, numbered=tuple(numbered) if any(numbered) else ())

    def _numbered(
        self, number: int, results: Sequence[_Tensor], count: int | None
    ) -> tuple[tuple[int, int], ...]:
        """Return which elements of an output's rows have the number of the batch's row in them."""
        found = results[number].found
        if self._rows == 1 or isinstance(found, Counted):
            return ()
        if isinstance(found, Picked):
            if count is None or not isinstance(results[count].found, Counted):
                raise MixedError(f"output {number} has rows that are not counted")
            return found.numbered
        if found != Part(0):
            raise MixedError(f"output {number} has not a row for each of a batch")
        return ()

    def _of(self, expr: Expr) -> _Value:
        """Return what is known of an expression."""
        if isinstance(expr, Var):
            return self._known[expr]
        if isinstance(expr, relax.Tuple):
            return tuple(self._of(field) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            whole = self._of(expr.tuple_value)
            assert isinstance(whole, tuple)
            return whole[int(expr.index)]
        if isinstance(expr, GenericConst):
            return self._tensor(self._hash_array(constant_value(expr)), None, _shape(expr.ty))
        if isinstance(expr, Call):
            return self._call(expr)
        raise MixedError("may mix the rows of a batch")

    def _call(self, call: Call) -> _Value:
        exprs, tensors = [], []
        for expr in _leaves(call.args):
            if isinstance(expr, Var | GenericConst) and not isinstance(expr, GlobalVar):
                found = [*_flat(self._of(expr))]
                tensors += found
                exprs += [expr] * len(found)
        types = [*_fields(call.ty)]
        if is_op(call, *VIEWS):
            return self._view(tensors[0], _shape(types[0]))
        kernel = self._mod[call.args[0]] if is_op(call, "relax.call_tir") else None
        site = Site(
            call,
            tuple(exprs),
            tuple(tensor.shape for tensor in tensors),
            tuple(t.found if isinstance(t.found, Part) else None for t in tensors),
            tuple(map(_shape, types)),
            self._rows,
            said := None if kernel is None else KernelRows.of(kernel),
            indexed=said.indexed if said and said.indexed else (),
        )
        made = self._follow(site, [tensor.found for tensor in tensors])
        for index, part in site.alike.items():
            value = constant_value(exprs[index])
            assert value is not None
            digest = self._hash_array(of_one_row(value, part, self._rows))
            tensors[index] = self._tensor(digest, part, tensors[index].shape)
        for index, shape, order in _packed(call, said):
            if (value := constant_value(exprs[index])) is not None:
                flat = value.reshape(*shape).transpose(order).reshape(-1)
                tensors[index] = self._tensor(self._hash_array(flat), None, flat.shape)
        if is_op(call, "relax.permute_dims"):
            digest = _moved(call, tensors[0])
        elif is_op(call, "relax.strided_slice") and not cut_axes(call, tensors[0].shape):
            digest = tensors[0].digest
        else:
            what = _what(call) if kernel is None else _said(kernel, site)
            name, shapes = op_name(call) or "", [t.of_one for t in tensors]
            if is_elementwise(name):
                shapes = _without_ones(shapes)
            read = zip((t.digest for t in tensors), shapes, strict=True)
            digest = _hash(name, what, *read)
        if not isinstance(call.ty, relax.TupleType):
            return self._tensor(digest, made[0], site.result)
        return tuple(
            self._tensor(_hash(digest, number), found, shape)
            for number, (found, shape) in enumerate(zip(made, site.results, strict=True))
        )

    def _follow(self, site: Site, read: Sequence[Found]) -> Sequence[Found]:
        """Return where a call's results have the rows."""
        if not any(read):
            return [None] * len(site.results)
        if any(isinstance(found, Picked | Counted) for found in read):
            return [self._follow_picked(site, read)]
        rule = RULES.get(op_name(site.call) or "")
        if rule is None:
            raise MixedError("may mix the rows of a batch")
        found = rule(site)
        if site.kernel is not None and site.kernel.selects:
            return [picked_boxes(*site.kernel.selects), Counted()]
        parts = [found] * len(site.results) if isinstance(found, Part) else [*found]
        for part, shape in zip(parts, site.results, strict=True):
            if not part.axis < len(shape) or shape[part.axis] != part.extent(self._rows):
                raise MixedError("spreads the rows of a batch over other things")
        return parts

    def _follow_picked(self, site: Site, read: Sequence[Found]) -> Picked:
        if not site.indexed or not isinstance(read[0], Picked):
            return follow_picked(site, read)
        picked, site.indexed = offsets(read[0], site.indexed, self._rows)
        return picked

    def _view(self, tensor: _Tensor, shape: Shape) -> _Tensor:
        """Return a tensor in another shape."""
        found = tensor.found
        if isinstance(found, Part):
            found = find_part(found.stride(tensor.shape), shape, self._rows)
        elif isinstance(found, Picked):
            found = reshaped(found, tensor.shape, shape)
        return self._tensor(tensor.digest, found, shape)

    def _tensor(self, digest: str, found: Found, shape: Shape) -> _Tensor:
        of_one = shape
        if isinstance(found, Part):
            of_one = found.of_one(shape)
        elif isinstance(found, Picked):
            if shape[0] % self._rows:
                raise MixedError("finds rows of a batch that have not the same bound each")
            of_one = (shape[0] // self._rows, *shape[1:])
        return _Tensor(digest, found, shape, of_one)

    def _hash_array(self, value: Array | None) -> str:
        assert value is not None
        return _hash(str(value.dtype), self._digests.of_elements(np.ascontiguousarray(value)))


def _moved(call: Call, tensor: _Tensor) -> str:
    """Return the digest of a row whose axes are permuted: where that moves elements."""
    extents = tensor.of_one
    axes = [axis for axis in permutation_of(call) if extents[axis] != 1]
    if axes == sorted(axes):
        return tensor.digest
    places = [sorted(axes).index(axis) for axis in axes]
    return _hash("permute", places, [extents[axis] for axis in sorted(axes)], tensor.digest)


def _without_ones(shapes: Sequence[Shape]) -> list[Shape]:
    """Return shapes that are broadcast, without the axes in which all have one element.

    Of one row a graph may have fewer of these: it is added to a constant before or after it gets
    an axis of its own.
    """
    rank = max(map(len, shapes), default=0)
    whole = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    kept = [axis for axis in range(rank) if any(shape[axis] != 1 for shape in whole)]
    return [tuple(shape[axis] for axis in kept) for shape in whole]


def _what(call: Call) -> str:
    """Return what a call's attributes say, and those arguments that are no tensors."""
    if is_op(call, LAYER):
        attrs = {str(key): str(value) for key, value in call.attrs.items() if key != "batch"}
        return str(sorted(attrs.items()))
    if is_op(call, "relax.strided_slice"):
        return str(cut_axes(call, _shape(call.args[0].ty)))
    others = [
        str(expr)
        for expr in _leaves(call.args)
        if not isinstance(expr, Var | GenericConst | relax.ShapeExpr)
    ]
    return f"{call.attrs} {others}"


def _packed(call: Call, said: KernelRows | None) -> Sequence[Packed]:
    """Return the constants that a call reads in an order which is up to how many rows there are."""
    if is_op(call, LAYER):
        return layer_workload(call).unpacked
    return () if said is None else said.packed


def _said(kernel: tvm.tirx.PrimFunc, site: Site) -> str:
    """Return what a kernel computes of a row."""
    said = site.kernel
    if said is None:
        return str(tvm_ffi.structural_hash(kernel))
    return f"{said.computes} {[*site.indexed]}"


def _called(value: Expr) -> str:
    """Return what a binding calls, for people."""
    if is_op(value, "relax.call_tir"):
        return str(value.args[0].name_hint)
    return (op_name(value) or "what computes").rpartition(".")[2]


def _leaves(args: Sequence[Any]) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, relax.Tuple):
            yield from _leaves(arg.fields)
        else:
            yield arg


def _flat(value: _Value) -> Iterator[_Tensor]:
    if isinstance(value, _Tensor):
        yield value
    else:
        for field in value:
            yield from _flat(field)


def _fields(ty: relax.Type) -> Iterator[relax.Type]:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _fields(field)
    else:
        yield ty


def _shape(ty: relax.Type) -> Shape:
    shape = shape_values(ty.shape) if isinstance(ty, relax.TensorType) else None
    if shape is None:
        raise MixedError("is no tensor of a static shape")
    return shape


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
