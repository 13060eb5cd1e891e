"""The proof that the rows of a batch are independent, and a digest of the computation of one row.

The place of the rows is followed through every tensor with different elements for each row; an
operator that may compute a row from other rows ends the proof. Plans for several batches may share
requests if they compute the same for each row, which the digest shows.
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
from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import Expr, is_op, op_name, permutation_of, shape_values
from neocpu.ir.recurrent_calls import LAYER, layer_workload
from neocpu.ir.row_analysis.kernel_rows import KernelRows, Packed
from neocpu.ir.row_analysis.relax_call import sliced_ranges
from neocpu.ir.row_analysis.selected import (
    Found,
    RowCount,
    SelectedRows,
    follow_selected,
    offsets,
    reshaped,
    selected_boxes,
)
from neocpu.ir.row_analysis.site import (
    MixedError,
    Part,
    Shape,
    Site,
    find_part,
    follow_rows,
    of_one_row,
)
from neocpu.ir.row_analysis.table import is_elementwise
from neocpu.ir.uses import bindings

VIEWS: Final = ("relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze")
"""Operators whose results have the same elements in the same order."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The verdict on the rows of a batch.

    `numbered` are the elements of each output's rows, in C order, that contain the number of the
    batch's row, each with its factor, such as the image in the rows of a NonMaxSuppression.
    """

    function: str | None = None  # a digest of the computation of one row, without the other rows
    mixed: str | None = None  # the operator that may mix rows, if there is one
    numbered: tuple[tuple[tuple[int, int], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor, and a digest of its computation."""

    digest: str  # that of the computation of one of its rows, in C order
    found: Found  # the rows' place, or rows that a run selects; None if all rows share the tensor
    shape: Shape  # that for all rows
    of_one: Shape  # that for one row


_Value: TypeAlias = "_Tensor | tuple[_Value, ...]"


def prove_independent_rows(
    mod: tvm.IRModule,
    row_counts: Sequence[int | None] = (),
    *,
    other_batches: bool = True,
    digests: ArrayDigests | None = None,
) -> Rows:
    """Return the verdict on the rows that a model's inputs have along their first axis.

    `mod` is simplified, with static shapes and weights as constants; `row_counts` are those of the
    `LoadedModel`. A batch of one row needs no proof unless `other_batches` are compiled too. The
    caller may ask for the `digests` of constants again.
    """
    if not other_batches and all(_shape(param.ty)[:1] == (1,) for param in mod["main"].params):
        return Rows()
    try:
        return _Proof(mod, digests or ArrayDigests()).rows(row_counts)
    except MixedError as error:
        return Rows(mixed=str(error))


class _Proof:
    """The walk through a module that proves its rows independent, or raises `MixedError`."""

    def __init__(self, mod: tvm.IRModule, digests: ArrayDigests) -> None:
        self._mod, self._digests = mod, digests
        self._known: dict[Var, _Value] = {}
        params = mod["main"].params
        extents = {_shape(param.ty)[:1] for param in params}
        if len(extents) != 1 or not extents.isdisjoint({(), (0,)}):
            raise MixedError("inputs have no first axis with the same extent")
        ((self._rows,),) = extents
        part = Part(0) if self._rows > 1 else None  # one row alone is not followed
        for number, param in enumerate(params):
            digest = _hash("input", number, str(param.ty.dtype))
            self._known[param] = self._tensor(digest, part, _shape(param.ty))

    def rows(self, row_counts: Sequence[int | None]) -> Rows:
        """Return the verdict; raises MixedError if an operator may mix rows."""
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
        found = results[number].found
        if self._rows == 1 or isinstance(found, RowCount):
            return ()
        if isinstance(found, SelectedRows):
            if count is None or not isinstance(results[count].found, RowCount):
                raise MixedError(f"output {number}, counted from 0, has rows without a count")
            return found.numbered
        if found != Part(0):
            raise MixedError(
                f"output {number}, counted from 0, does not have one row for each row of a batch"
            )
        return ()

    def _of(self, expr: Expr) -> _Value:
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
        reported = None if kernel is None else KernelRows.of(kernel)
        site = Site(
            call=call,
            tensors=tuple(exprs),
            shapes=tuple(tensor.shape for tensor in tensors),
            parts=tuple(t.found if isinstance(t.found, Part) else None for t in tensors),
            results=tuple(map(_shape, types)),
            rows=self._rows,
            kernel=reported,
            indexed=reported.indexed if reported and reported.indexed else (),
        )
        made = self._follow(site, [tensor.found for tensor in tensors])
        for index, part in site.repeated.items():
            value = constant_value(exprs[index])
            assert value is not None
            digest = self._hash_array(of_one_row(value, part, self._rows))
            tensors[index] = self._tensor(digest, part, tensors[index].shape)
        for index, shape, order in _packed(call, reported):
            if (value := constant_value(exprs[index])) is not None:
                flat = value.reshape(*shape).transpose(order).reshape(-1)
                tensors[index] = self._tensor(self._hash_array(flat), None, flat.shape)
        if is_op(call, "relax.permute_dims"):
            digest = _moved(call, tensors[0])
        elif is_op(call, "relax.strided_slice") and not sliced_ranges(call, tensors[0].shape):
            digest = tensors[0].digest
        else:
            text = _attributes_text(call) if kernel is None else _kernel_text(kernel, site)
            name, shapes = op_name(call) or "", [t.of_one for t in tensors]
            if is_elementwise(name):
                shapes = _without_ones(shapes)
            read = zip((t.digest for t in tensors), shapes, strict=True)
            digest = _hash(name, text, *read)
        if not isinstance(call.ty, relax.TupleType):
            return self._tensor(digest, made[0], site.result)
        return tuple(
            self._tensor(_hash(digest, number), found, shape)
            for number, (found, shape) in enumerate(zip(made, site.results, strict=True))
        )

    def _follow(self, site: Site, read: Sequence[Found]) -> Sequence[Found]:
        if not any(read):
            return [None] * len(site.results)
        if any(isinstance(found, SelectedRows | RowCount) for found in read):
            return [self._follow_selected(site, read)]
        parts = follow_rows(site)
        if site.kernel is not None and site.kernel.selects:
            return [selected_boxes(*site.kernel.selects), RowCount()]
        for part, shape in zip(parts, site.results, strict=True):
            if not part.axis < len(shape) or shape[part.axis] != part.extent(self._rows):
                raise MixedError("spreads the rows of a batch over other axes")
        return parts

    def _follow_selected(self, site: Site, read: Sequence[Found]) -> SelectedRows:
        if not site.indexed or not isinstance(read[0], SelectedRows):
            return follow_selected(site, read)
        selected, site.indexed = offsets(read[0], site.indexed, self._rows)
        return selected

    def _view(self, tensor: _Tensor, shape: Shape) -> _Tensor:
        found = tensor.found
        if isinstance(found, Part):
            found = find_part(found.stride(tensor.shape), shape, self._rows)
        elif isinstance(found, SelectedRows):
            found = reshaped(found, tensor.shape, shape)
        return self._tensor(tensor.digest, found, shape)

    def _tensor(self, digest: str, found: Found, shape: Shape) -> _Tensor:
        of_one = shape
        if isinstance(found, Part):
            of_one = found.of_one(shape)
        elif isinstance(found, SelectedRows):
            if shape[0] % self._rows:
                raise MixedError("selects rows with different bounds for the rows of a batch")
            of_one = (shape[0] // self._rows, *shape[1:])
        return _Tensor(digest, found, shape, of_one)

    def _hash_array(self, value: Array | None) -> str:
        assert value is not None
        return _hash(str(value.dtype), self._digests.of_elements(np.ascontiguousarray(value)))


def _moved(call: Call, tensor: _Tensor) -> str:
    extents = tensor.of_one
    axes = [axis for axis in permutation_of(call) if extents[axis] != 1]
    if axes == sorted(axes):
        return tensor.digest
    places = [sorted(axes).index(axis) for axis in axes]
    return _hash("permute", places, [extents[axis] for axis in sorted(axes)], tensor.digest)


def _without_ones(shapes: Sequence[Shape]) -> list[Shape]:
    """Return shapes, aligned as in broadcasting, without the axes of one element in all of them.

    A graph for one row may have fewer such axes, because constants may be added before or after
    the row gets its axis.
    """
    rank = max(map(len, shapes), default=0)
    whole = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    kept = [axis for axis in range(rank) if any(shape[axis] != 1 for shape in whole)]
    return [tuple(shape[axis] for axis in kept) for shape in whole]


def _attributes_text(call: Call) -> str:
    if is_op(call, LAYER):
        attrs = {str(key): str(value) for key, value in call.attrs.items() if key != "batch"}
        return str(sorted(attrs.items()))
    if is_op(call, "relax.strided_slice"):
        return str(sliced_ranges(call, _shape(call.args[0].ty)))
    others = [
        str(expr)
        for expr in _leaves(call.args)
        if not isinstance(expr, Var | GenericConst | relax.ShapeExpr)
    ]
    return f"{call.attrs} {others}"


def _packed(call: Call, reported: KernelRows | None) -> Sequence[Packed]:
    if is_op(call, LAYER):
        return layer_workload(call).unpacked
    return () if reported is None else reported.packed


def _kernel_text(kernel: tvm.tirx.PrimFunc, site: Site) -> str:
    reported = site.kernel
    if reported is None:
        return str(tvm_ffi.structural_hash(kernel))
    return f"{reported.computes} {[*site.indexed]}"


def _called(value: Expr) -> str:
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
        raise MixedError("is no tensor with a static shape")
    return shape


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
