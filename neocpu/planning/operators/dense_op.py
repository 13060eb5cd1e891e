"""Matrix products with constant weights: layout-dependent, with one schedule.

Many rows on the grid of a quantisation are multiplied in integers, where that is faster, as a 1x1
convolution whose pixels they are: a matrix that lies row by row is NCHW[K]c of one block, so that
the template of dot products reads and writes it as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Var

from neocpu.foundation.bfloat16 import NAME
from neocpu.foundation.dtypes import bytes_of
from neocpu.planning.bfloat16_forms import rounded_weights
from neocpu.planning.operators.layout_op import Emitter
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.precision import Precision
from neocpu.planning.quantised.grids import STORED, Grid
from neocpu.planning.quantised.quantised_steps import ConvForm, Step, stored_form
from neocpu.planning.stored_weights import StoredWeights
from neocpu.planning.weight_origin import Unpacked
from neocpu.relax_utils import Array, Expr, dtype_of, is_op, static_shape
from neocpu.schedules import registry
from neocpu.schedules.operators import dense
from neocpu.schedules.operators.dense import DenseWorkload, lower_dense, pack_weights
from neocpu.schedules.vocabulary.layout import DataLayout, KernelLayout, ceil_div
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.scheme import DotScheme
from neocpu.schedules.vocabulary.steps import TENSOR
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

FEW_ROWS: Final = 4
"""Rows up to which a layer takes as long as its weights take from memory."""


def dense_workload(value: Expr, weights: Array | None) -> DenseWorkload | None:
    """Return the workload of a float32 matrix product with constant ``weights``, else None."""
    if not is_op(value, "relax.matmul") or not isinstance(value.args[0], Var):
        return None
    rows = static_shape(value.args[0])
    if weights is None or weights.ndim != 2 or rows is None or len(rows) < 2:
        return None
    if dtype_of(value) != "float32" or weights.dtype != "float32":
        return None
    columns, depth = int(weights.shape[1]), int(weights.shape[0])
    return DenseWorkload(math.prod(rows[:-1]), columns, depth, Numerics.uniform(dtype_of(value)))


def with_stored_weights(
    workload: DenseWorkload, stored: StoredWeights
) -> tuple[DenseWorkload, Array, Array] | None:
    """Return a layer that reads integers as weights, these, and the scales of its columns.

    None where that does not pay, for many rows share what they make float32 again, or where they
    are no such integers.
    """
    centred, scale = stored.centred, stored.scale.reshape(-1)
    per_column = scale.size == 1 or (stored.axis == 1 and scale.size == workload.n)
    if workload.m > FEW_ROWS or not per_column or centred.min() < -128 or centred.max() > 127:
        return None
    numerics = replace(workload.numerics, weights="int8")
    scales = np.broadcast_to(scale, (workload.n,)).astype(np.float32)
    return replace(workload, numerics=numerics), centred.astype(np.int8), scales


def integer_forms(
    workload: DenseWorkload, stored: StoredWeights, data: Grid, steps: Sequence[Step]
) -> tuple[ConvForm, ...]:
    """Return the forms of many rows that read integers: writing float32, and writing integers.

    Parameters
    ----------
    workload : DenseWorkload
        Without its epilogue.
    data : Grid
        Of what it reads.
    steps : sequence of Step
        All that follows.
    """
    if workload.m <= FEW_ROWS:
        return ()
    pixels = Conv2dWorkload(
        1, workload.k, workload.m, 1, workload.n, (1, 1), numerics=workload.numerics
    )
    axes = {0: 1, 1: 0}
    values = np.ascontiguousarray(stored.values.T)[:, :, None, None]
    weights = replace(stored, values=values, axis=axes[stored.axis])
    ends_on_grid = bool(steps) and isinstance(steps[-1][0], Grid)
    found = (
        stored_form(pixels, weights, data, steps, {}, store=store)
        for store in ((False, True) if ends_on_grid else (False,))
    )
    return tuple(form for form in found if form is not None)


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Rows on a grid.

    Attributes
    ----------
    var : Var
        Their integers, as `STORED`, or real numbers that round to them.
    """

    var: Var
    grid: Grid


@dataclass(frozen=True, slots=True, eq=False)
class DenseOp:
    """A matrix product with constant weights, and its epilogue.

    Attributes
    ----------
    result, data : Var
        ``data`` has shape ``(..., K)``; all but its last axis are rows.
    weights : array
        ``(K, N)``.
    operands : tuple of array or Var
        What the epilogue's steps read, in order: a ``(N,)`` vector or a tensor like the result.
    forms : tuple of ConvForm
        See `integer_forms`.
    readers : frozenset of Var
        What reads the result, unless the function returns it.
    rows : StoredRows or None
        What `forms` read, where there are any.
    """

    name: str
    result: Var
    data: Var
    absorbed: frozenset[Var]
    workload: DenseWorkload
    weights: NDArray[np.generic]
    operands: tuple[Any, ...]

    forms: tuple[ConvForm, ...] = ()
    readers: frozenset[Var] = frozenset()
    rows: StoredRows | None = None

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The result's, of which all but the last axis are rows."""
        shape = static_shape(self.result)
        assert shape is not None
        return shape

    @property
    def precision(self) -> Precision:
        """What it computes with."""
        return Precision.FP32

    def scheme(self, target: CpuTarget, threads: int) -> DotScheme | None:
        """Return the scheme of a template that computes it; None of its own schedule."""
        return None

    def estimate(self, target: CpuTarget, threads: int) -> float:
        """Return analytic seconds."""
        return dense.estimate(self.workload, target, threads)

    def in_network(self, costs: NetworkCosts) -> NetworkTime:
        """Return what its kernel takes in a run."""
        kind = "dense of few rows" if self.workload.m <= FEW_ROWS else "dense"
        return costs.estimated(
            lambda target: self.estimate(target, costs.threads),
            kind,
            streamed=self.workload.row_bytes,
        )

    def packed_bytes(self, target: CpuTarget, threads: int) -> int:
        """Return the bytes of the weights as its kernel reads them."""
        shape = dense.packed_shape(self.workload, target, threads)
        return math.prod(shape) * bytes_of(self.workload.numerics.weights)

    def computing(self, precision: Precision, target: CpuTarget) -> DenseOp:
        """Have few rows read weights of 16 bits, if asked for, and many integers, if faster."""
        if precision is Precision.BF16 and self.workload.m <= FEW_ROWS:
            return self._reading_bfloat16()
        if precision in (Precision.AUTO, Precision.INT8):
            found = self._in_integers(target)
            if found and (precision is Precision.INT8 or _is_faster(found, self, target)):
                return found
        return self

    def _reading_bfloat16(self) -> DenseOp:
        if self.workload.numerics != FLOAT32:
            return self
        numerics = replace(FLOAT32, weights=NAME)
        return replace(
            self,
            workload=replace(self.workload, numerics=numerics),
            weights=rounded_weights(self.weights),
        )

    def _in_integers(self, target: CpuTarget) -> IntegerDenseOp | None:
        """Return it as one that reads integers and writes float32; None if the CPU cannot."""
        found = tuple(form for each in self.forms if (form := each.on(target)) is not None)
        if not found or _scheme(found[0].workload, target, 1) is None:
            return None
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return IntegerDenseOp(**given | {"forms": found}).writing("float32")

    def emit(self, emitter: Emitter) -> Var:
        """Emit its kernel's call, on packed weights; data and result are seen as matrices."""
        workload, target, threads = self.workload, emitter.target, emitter.threads
        kernel = emitter.kernel(self.name, workload, lambda: lower_dense(workload, target, threads))
        rows = (workload.m, workload.n)
        args = [emitter.plain(self.data, (workload.m, workload.k))]
        packed = pack_weights(self.weights, workload, target, threads)
        origin = Unpacked(self.weights.T[:, :, None, None], KernelLayout(1, packed.shape[-1]))
        args.append(emitter.weight(packed, origin=origin))
        for operand in self.operands:
            if isinstance(operand, Var):
                args.append(emitter.plain(operand, rows))
            else:
                args.append(emitter.weight(operand))
        return emitter.call_rows(kernel, args, rows, self.result_shape, workload.numerics.output)


@dataclass(frozen=True, slots=True, eq=False)
class IntegerDenseOp(DenseOp):
    """A matrix product that reads integers: the one of `forms` that `workload` is of.

    The weights are OIHW.
    """

    @property
    def precision(self) -> Precision:
        """What it computes with."""
        return Precision.INT8

    @property
    def form(self) -> ConvForm:
        """How it is computed."""
        return next(f for f in self.forms if f.types[1] == self.workload.numerics.output)

    def writing(self, dtype: str) -> IntegerDenseOp:
        """Return it as it writes ``dtype``; itself if it cannot."""
        form = next((form for form in self.forms if form.types[1] == dtype), None)
        if form is None:
            return self
        numerics, epilogue = form.workload.numerics, form.workload.epilogue
        return replace(
            self,
            workload=replace(self.workload, numerics=numerics, epilogue=epilogue),
            weights=form.weights,
            operands=form.operands,
        )

    def computing(self, precision: Precision, target: CpuTarget) -> IntegerDenseOp:
        """Return it as it is: it was asked for."""
        return self

    def scheme(self, target: CpuTarget, threads: int) -> DotScheme:
        """Return the scheme with the best estimate, between matrices."""
        found = _scheme(self.form.workload, target, threads)
        assert found is not None
        return found

    def estimate(self, target: CpuTarget, threads: int) -> float:
        """Return analytic seconds."""
        scheme = self.scheme(target, threads)
        return registry.estimate(self.form.workload, scheme, target, threads)

    def packed_bytes(self, target: CpuTarget, threads: int) -> int:
        """Return the bytes of the weights as its kernel reads them."""
        scheme = self.scheme(target, threads)
        shape, dtype = registry.argument_shapes(self.form.workload, scheme)[1]
        return math.prod(shape) * bytes_of(dtype)

    def emit(self, emitter: Emitter) -> Var:
        """Emit the template's kernel, and the rounding of data that are no integers yet."""
        form, target, threads = self.form, emitter.target, emitter.threads
        workload, scheme = form.workload, self.scheme(target, threads)
        kernel = emitter.kernel(
            self.name,
            (workload, scheme),
            lambda: registry.lower(workload, scheme, target, threads),
        )
        shapes = [shape for shape, _ in registry.argument_shapes(workload, scheme)]
        args = [self._data(emitter, shapes[0])]
        packed = registry.pack_weights(form.weights, workload, scheme)
        origin = Unpacked.known(form.weights, registry.weight_layout(workload, scheme))
        args.append(emitter.weight(packed, origin=origin))
        for operand in form.operands:
            if isinstance(operand, Var):
                args.append(emitter.plain(operand, shapes[-1]))
            else:
                args.append(emitter.weight(scheme.out_layout.pack_channels(operand)))
        m, n, written, shape = self.workload.m, self.workload.n, scheme.oc_bn, self.result_shape
        if written == n:
            return emitter.call_rows(kernel, args, shapes[-1], shape, form.types[1])
        made = emitter.call_rows(kernel, args, shapes[-1], (m, written), form.types[1])
        columns = emitter.emit(relax.op.strided_slice(made, [1], [0], [n]))
        return columns if shape == (m, n) else emitter.emit(relax.op.reshape(columns, shape))

    def _data(self, emitter: Emitter, shape: tuple[int, ...]) -> Var:
        """Return the data as integers, which whoever made them may have stored."""
        assert self.rows is not None
        data = emitter.plain(self.rows.var, (self.workload.m, self.workload.k))
        if dtype_of(data) != STORED:
            data = emitter.emit(self.rows.grid.quantise(data))
        return emitter.emit(relax.op.reshape(data, shape))


def storing_integers(layers: Sequence[DenseOp]) -> tuple[DenseOp, ...]:
    """Return the layers, of which those store integers whose results such ones alone read."""
    integer = [layer for layer in layers if isinstance(layer, IntegerDenseOp)]
    reading: dict[Var, set[Var]] = {}
    for layer in integer:
        if not any(layer.data.same_as(each) for each in layer.operands if isinstance(each, Var)):
            reading.setdefault(layer.data, set()).update((layer.result, *layer.absorbed))

    def stored(layer: DenseOp) -> DenseOp:
        readers = layer.readers
        if not isinstance(layer, IntegerDenseOp) or not readers:
            return layer
        alone = readers <= reading.get(layer.result, set())
        return layer.writing(STORED) if alone else layer

    return tuple(map(stored, layers))


@functools.cache
def _scheme(workload: Conv2dWorkload, target: CpuTarget, threads: int) -> DotScheme | None:
    """Return the best scheme that reads and writes matrices; None if there is none.

    A row of the output is whole vectors: what is beyond its columns is cut off.
    """
    lanes = target.dot_unit(workload.numerics).lanes
    rows = DataLayout(workload.in_channels)
    made = DataLayout(ceil_div(workload.out_channels, lanes) * lanes)
    tensors = any(op.operand == TENSOR for op in workload.epilogue)
    if tensors and made.block != workload.out_channels:
        return None
    found = (
        registry.fold(workload, scheme, rows, made, target)
        for scheme in registry.schemes(workload, target)
    )
    fitting = [scheme for scheme in found if isinstance(scheme, DotScheme)]
    return min(
        fitting, key=lambda each: registry.estimate(workload, each, target, threads), default=None
    )


def _is_faster(one: DenseOp, other: DenseOp, target: CpuTarget) -> bool:
    """Whether a layer takes less than another, by estimates for one thread."""
    return one.estimate(target, 1) < other.estimate(target, 1)
