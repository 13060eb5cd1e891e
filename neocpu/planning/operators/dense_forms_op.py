"""Matrix products with many rows by templates of convolutions: in integers or bfloat16 by dot
products or tiles, and in float32 by tiles of bfloat16.

The rows are taken as the pixels of a 1x1 convolution. A matrix that is stored row by row is
NCHW[K]c with one block, so that the template reads and writes it as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np
from tvm import relax
from tvm.ir import Var

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.foundation.errors import UnsupportedError
from neocpu.ir.constants import StoredWeights
from neocpu.ir.expressions import dtype_of
from neocpu.planning.operators.dense_op import FEW_ROWS, DenseOp
from neocpu.planning.operators.layout_op import Emitter
from neocpu.planning.precision import Precision
from neocpu.planning.quantised.grids import Grid
from neocpu.planning.quantised.quantised_steps import ConvForm, Step, bfloat16_forms, stored_form
from neocpu.planning.weight_origin import Packing, Unpacked
from neocpu.schedules import registry
from neocpu.schedules.operators.dense import DenseWorkload
from neocpu.schedules.vocabulary.layout import DataLayout, ceil_div
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.scheme import DotScheme, MatrixScheme, SplitScheme
from neocpu.schedules.vocabulary.steps import TENSOR
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import for_any_size
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

RowScheme: TypeAlias = DotScheme | MatrixScheme | SplitScheme
"""A scheme whose kernels read and write matrices as they are stored."""


def integer_forms(
    workload: DenseWorkload, stored: StoredWeights, data: Grid, steps: Sequence[Step]
) -> tuple[ConvForm, ...]:
    """Return a layer's forms that read integers; `workload` has no epilogue: these are `steps`."""
    if workload.m <= FEW_ROWS:
        return ()
    pixels = _as_pixels(workload)
    axes = {0: 1, 1: 0}
    values = np.ascontiguousarray(stored.values.T)[:, :, None, None]
    weights = replace(stored, values=values, axis=axes[stored.axis])
    ends_on_grid = bool(steps) and isinstance(steps[-1][0], Grid)
    found = (
        stored_form(pixels, weights, data, steps, {}, store=store)
        for store in ((False, True) if ends_on_grid else (False,))
    )
    return tuple(form for form in found if form is not None)


def _as_pixels(workload: DenseWorkload) -> Conv2dWorkload:
    return Conv2dWorkload(
        batch=1,
        in_channels=workload.k,
        height=workload.m,
        width=1,
        out_channels=workload.n,
        kernel=(1, 1),
        numerics=workload.numerics,
        epilogue=workload.epilogue,
    )


def computed_in(
    op: DenseOp, precision: Precision, target: CpuTarget, small: bool = False, splits: bool = False
) -> DenseOp:
    """Return a layer in the numbers that ``precision`` allows.

    In bfloat16, few rows read 16-bit weights, and many read integers or bfloat16 where that is
    estimated to be faster, or wherever they can if ``small``. In float32, many rows are multiplied
    by tiles where ``splits`` allows it and that is estimated to be faster.
    """
    in_float = (_in_parts(op, target) if splits else None) or op
    if precision is Precision.FP32:
        return in_float
    in_bfloat16 = precision is Precision.BF16
    if in_bfloat16 and op.workload.m <= FEW_ROWS:
        return op.reading_bfloat16_weights()
    found = _in_forms(op, _bfloat16_forms(op) if in_bfloat16 else op.forms, target)
    if found and (small or found.estimate(target, 1) < in_float.estimate(target, 1)):
        return found
    return in_float


def _in_parts(op: DenseOp, target: CpuTarget) -> FormedDenseOp | None:
    """Return a float32 layer by tiles of bfloat16 if that is faster; None if not, or impossible:
    an infinite weight would make NaNs of sums that are infinite.
    """
    w = op.workload
    if w.m <= FEW_ROWS or w.numerics != FLOAT32 or not np.isfinite(op.weights).all():
        return None
    found = _in_forms(op, [_parts_form(op)], target)
    return found if found and found.estimate(target, 1) < op.estimate(target, 1) else None


def _parts_form(op: DenseOp) -> ConvForm:
    # A view: packing copies the weights anyway, and each plan that is considered asks for the form.
    return ConvForm(_as_pixels(op.workload), op.weights.T[:, :, None, None], op.operands)


def in_same_form(op: DenseOp, agreed: DenseOp, target: CpuTarget, threads: int) -> DenseOp:
    """Return a layer that is computed as another one is, which has another number of rows.

    Raises UnsupportedError: it has no such form.
    """
    numerics = agreed.workload.numerics
    found: DenseOp | None
    if not isinstance(agreed, FormedDenseOp):
        found = op if op.workload.numerics == numerics else op.reading_bfloat16_weights()
    else:
        found = _formed_as(op, agreed, target, agreed.scheme(target, threads))
    if found is None or found.workload.numerics != numerics:
        raise UnsupportedError(
            f"'{op.result.name}' of {op.workload.m} rows is not computed as one of "
            f"{agreed.workload.m} rows: leave out sizes with {FEW_ROWS} rows or fewer, or give a "
            "single shape"
        )
    return found


def _formed_as(
    op: DenseOp, agreed: FormedDenseOp, target: CpuTarget, scheme: RowScheme
) -> DenseOp | None:
    numerics = agreed.workload.numerics
    forms: Sequence[ConvForm] = op.forms
    if numerics == FLOAT32:
        forms = (_parts_form(op),) if op.workload.numerics == FLOAT32 else ()
    elif not DTYPES[numerics.data].is_integer:
        forms = _bfloat16_forms(op)
    found = _in_forms(op, forms, target)
    return found and replace(found.writing(numerics.output), given=scheme)


def _bfloat16_forms(op: DenseOp) -> tuple[ConvForm, ...]:
    """Return the forms that read bfloat16; none for a layer that has forms with integers."""
    if op.forms or op.workload.numerics != FLOAT32:
        return ()
    weights = np.ascontiguousarray(op.weights.T)[:, :, None, None]
    forms = bfloat16_forms(_as_pixels(op.workload), weights, op.operands)
    adds = any(each.operand == TENSOR for each in op.workload.epilogue)  # float32 tensors
    return tuple(form for form in forms if not adds or form.types[1] == "float32")


def _in_forms(op: DenseOp, forms: Sequence[ConvForm], target: CpuTarget) -> FormedDenseOp | None:
    """Return a layer that is computed by forms and writes float32; None if the CPU cannot."""
    found = tuple(form for each in forms if (form := each.on(target)) is not None)
    if not found or _scheme_of(found[0].workload, target, 1) is None:
        return None
    values = {each.name: getattr(op, each.name) for each in fields(op)}
    return FormedDenseOp(**values | {"forms": found}).writing("float32")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FormedDenseOp(DenseOp):
    """A matrix product by one of `forms`, which has `workload` and the OIHW weights.

    `given`: its scheme; None for the best one.
    """

    given: RowScheme | None = None

    @property
    def precision(self) -> Precision:
        if self.workload.numerics == FLOAT32:
            return Precision.FP32
        reads_integers = DTYPES[self.workload.numerics.data].is_integer
        return Precision.INT8 if reads_integers else Precision.BF16

    @property
    def form(self) -> ConvForm:
        return next(f for f in self.forms if f.types[1] == self.workload.numerics.output)

    def writing(self, dtype: str) -> FormedDenseOp:
        """Return the layer writing ``dtype``; the layer itself if it cannot."""
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

    def scheme(self, target: CpuTarget, threads: int) -> RowScheme:
        """Return the scheme with the best estimate that reads and writes matrices."""
        found = self.given or _scheme_of(self.form.workload, target, threads)
        assert found is not None
        return found

    def estimate(self, target: CpuTarget, threads: int) -> float:
        scheme = self.scheme(target, threads)
        return registry.estimate(self.form.workload, scheme, target, threads)

    def packed_bytes(self, target: CpuTarget, threads: int) -> int:
        scheme = self.scheme(target, threads)
        shape, dtype = registry.argument_shapes(self.form.workload, scheme)[1]
        return math.prod(shape) * bytes_of(dtype)

    def emit(self, emitter: Emitter) -> Var:
        form, target, threads = self.form, emitter.target, emitter.threads
        workload, scheme = form.workload, self.scheme(target, threads)
        kernel = emitter.kernel(
            self.name,
            (workload, scheme),
            lambda key: registry.lower(key[0], scheme, target, threads),
        )
        shapes = [shape for shape, _ in registry.argument_shapes(workload, scheme)]
        args = [self._data(emitter, shapes[0])]
        weights = registry.given_weights(form.weights, workload, scheme)
        packed = Packing(
            source=weights, make=lambda: registry.pack_weights(weights, workload, scheme)
        )
        origin = Unpacked.known(weights, registry.weight_layout(workload, scheme))
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
        source, dtype = self.rows.var if self.rows else self.data, self.workload.numerics.data
        data = emitter.plain(source, (self.workload.m, self.workload.k))
        if dtype_of(data) != dtype:
            rounded = self.rows.grid.quantise(data) if self.rows else relax.op.astype(data, dtype)
            data = emitter.emit(rounded)
        return emitter.emit(relax.op.reshape(data, shape))


def storing_narrow(layers: Sequence[DenseOp]) -> tuple[DenseOp, ...]:
    """Return the layers, storing narrow numbers where all readers are forms that read the same."""
    formed = [layer for layer in layers if isinstance(layer, FormedDenseOp)]
    reading: dict[Var, set[Var]] = {}
    for layer in formed:
        if not any(layer.data.same_as(each) for each in layer.operands if isinstance(each, Var)):
            reading.setdefault(layer.data, set()).update((layer.result, *layer.absorbed))
    types = {layer.data: layer.workload.numerics.data for layer in formed}

    def stored(layer: DenseOp) -> DenseOp:
        readers = layer.readers
        if not isinstance(layer, FormedDenseOp) or not readers:
            return layer
        alone = readers <= reading.get(layer.result, set())
        return layer.writing(types[layer.result]) if alone else layer

    return tuple(map(stored, layers))


def _scheme_of(workload: Conv2dWorkload, target: CpuTarget, threads: int) -> RowScheme | None:
    """Return the best scheme on matrices, if any; for any number of rows, one in tile registers."""
    return _scheme(workload, target, threads, for_any_size())


@functools.cache
def _scheme(
    workload: Conv2dWorkload, target: CpuTarget, threads: int, in_tiles: bool
) -> RowScheme | None:
    """Return the best scheme on matrices, if any; rows have whole vectors, cut off at the end."""
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
    fitting = [scheme for scheme in found if isinstance(scheme, RowScheme)]
    if in_tiles:
        fitting = [each for each in fitting if _is_in_tiles(each, workload, target)]
    return min(
        fitting, key=lambda each: registry.estimate(workload, each, target, threads), default=None
    )


def _is_in_tiles(scheme: RowScheme, workload: Conv2dWorkload, target: CpuTarget) -> bool:
    if isinstance(scheme, MatrixScheme):
        return target.dot_unit(workload.numerics).instruction.in_tiles
    return isinstance(scheme, SplitScheme)
