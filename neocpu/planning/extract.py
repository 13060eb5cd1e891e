"""Extract the layout operators of a simplified Relax function (paper §3.2)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, Var

from neocpu.planning.epilogues import Epilogue, match_epilogue
from neocpu.planning.network import (
    ConcatOp,
    ConvOp,
    DenseOp,
    ElementwiseOp,
    GatherOp,
    GlobalPoolOp,
    LayoutOp,
    Network,
    PoolOp,
    Read,
    Shape4,
)
from neocpu.planning.prologues import Prologue, match_prologue
from neocpu.relax_utils import (
    Expr,
    bindings,
    channel_slice,
    constant_value,
    consumers,
    definitions,
    dtype_of,
    is_op,
    op_name,
    static_shape,
    used_vars,
)
from neocpu.schedules.operators.dense import DenseWorkload
from neocpu.schedules.operators.pool import PoolWorkload
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# Layout-oblivious operators; what they make of the padded lanes of a block is finite.
_ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        "add", "subtract", "multiply", "maximum", "minimum", "abs", "negative", "exp", "tanh",
        "sigmoid", "clip", "erf", "square", "nn.relu", "nn.silu", "nn.gelu", "nn.gelu_tanh",
        "nn.leakyrelu",
    )
)  # fmt: skip


def extract(mod: tvm.IRModule, *, prologues: bool = True) -> Network:
    """Find the layout operators of ``main`` and the feature maps that must exist in NCHW.

    Parameters
    ----------
    mod : tvm.IRModule
        As `neocpu.passes.simplify_relax.simplify` returns it.
    prologues : bool
        Whether 1x1 convolutions may take elementwise operators in front of them.
    """
    return _Extractor(mod["main"], prologues).run()


@dataclass(frozen=True, slots=True, eq=False)
class _Core:
    """A convolution or dense layer: its call, its workload with all that is fused, the chains."""

    call: Call
    workload: Any
    epilogue: Epilogue
    prologue: Prologue | None = None


class _Extractor:
    def __init__(self, func: relax.Function, prologues: bool) -> None:
        self._func = func
        self._prologues = prologues
        self._definitions = definitions(func)
        self._readers = consumers(func)
        self._results = set(used_vars(func.body.body))
        self._sliced = self._slices_of_concats()
        self._claimed: set[Var] = set(self._sliced)
        self._numbers: Counter[str] = Counter()

    def run(self) -> Network:
        cores = self._fuse_epilogues()
        if self._prologues:
            self._fuse_prologues(cores)
        ops: list[LayoutOp] = []
        dense: list[DenseOp] = []
        for binding in bindings(self._func):
            var = binding.var
            if var in cores:
                core = cores[var]
                if isinstance(core.workload, Conv2dWorkload):
                    ops.append(self._conv(core))
                else:
                    dense.append(self._dense(core))
            elif var not in self._claimed:
                op = self._layout_op(var, binding.value)
                if op is not None:
                    ops.append(op)
        inputs = frozenset(self._func.params)
        return Network(tuple(ops), tuple(dense), self._nchw_reads(ops), inputs)

    def _fuse_epilogues(self) -> dict[Var, _Core]:
        """Return each convolution and dense layer with its epilogue, by the last variable."""
        cores: dict[Var, _Core] = {}
        # Later operators claim a shared residual add first: by then its other side is computed.
        for binding in reversed(list(bindings(self._func))):
            workload = _conv_workload(binding.value) or _dense_workload(binding.value)
            if workload is None:
                continue
            if isinstance(workload, Conv2dWorkload):
                shape: tuple[int, ...] = workload.output_shape
                vector: tuple[int, ...] = (1, workload.out_channels, 1, 1)
            else:
                shape, vector = static_shape(binding.value) or (), (workload.n,)
            matched = match_epilogue(
                binding.var,
                shape,
                vector,
                self._readers,
                self._definitions,
                self._claimed,
                self._results,
            )
            self._claimed.update(matched.chain)
            fused = replace(workload, epilogue=matched.steps)
            cores[matched.chain[-1]] = _Core(binding.value, fused, matched)
        return cores

    def _fuse_prologues(self, cores: dict[Var, _Core]) -> None:
        """Give convolutions the elementwise chains in front of them that no epilogue has."""
        taken = self._claimed | self._results
        for last, core in cores.items():
            if not isinstance(core.workload, Conv2dWorkload):
                continue
            found = match_prologue(
                core.call.args[0],
                core.workload,
                self._readers,
                self._definitions,
                taken,
            )
            taken.update(found.chain)
            self._claimed.update(found.chain)
            fused = replace(core.workload, prologue=found.steps)
            cores[last] = replace(core, workload=fused, prologue=found)

    def _name(self, kind: str) -> str:
        self._numbers[kind] += 1
        return f"{kind}_{self._numbers[kind] - 1}"

    def _conv(self, core: _Core) -> ConvOp:
        workload, chain = core.workload, core.epilogue.chain
        weights = constant_value(core.call.args[1])
        assert weights is not None
        before = core.prologue or Prologue(core.call.args[0], (), (), ())
        gates = [v for v in before.operands if isinstance(v, Var)]
        residuals = [v for v in core.epilogue.operands if isinstance(v, Var)]
        reads = [Read(before.source, workload.input_shape)]
        reads += [Read(var, (*workload.input_shape[:2], 1, 1)) for var in gates]
        reads += [Read(var, workload.output_shape, in_output_layout=True) for var in residuals]
        return ConvOp(
            self._name("conv2d"),
            chain[-1],
            workload.output_shape,
            tuple(reads),
            frozenset((*before.chain, *chain[:-1])),
            workload,
            weights,
            core.epilogue.operands,
            before.operands,
            # A sum in float64 cannot overflow, and needs no array of flags.
            finite_weights=math.isfinite(weights.sum(dtype=np.float64)),
        )

    def _dense(self, core: _Core) -> DenseOp:
        chain = core.epilogue.chain
        weights = constant_value(core.call.args[1])
        assert weights is not None
        return DenseOp(
            self._name("dense"),
            chain[-1],
            core.call.args[0],
            frozenset(chain[:-1]),
            core.workload,
            weights,
            core.epilogue.operands,
        )

    def _layout_op(self, var: Var, value: Expr) -> LayoutOp | None:
        shape = feature_map_shape(value)
        if shape is None or not isinstance(value, Call):
            return None
        if is_op(value, "relax.nn.max_pool2d", "relax.nn.avg_pool2d"):
            return self._pool(var, value, shape)
        if is_op(value, "relax.mean", "relax.nn.adaptive_avg_pool2d"):
            return self._global_pool(var, value, shape)
        if is_op(value, "relax.concat"):
            return self._concat(var, value, shape)
        if is_op(value, "relax.strided_slice"):
            return self._gather(var, [var], shape)
        if op_name(value) in _ELEMENTWISE:
            return self._elementwise(var, value, shape)
        return None

    def _pool(self, var: Var, call: Call, shape: Shape4) -> LayoutOp | None:
        source = feature_map_shape(call.args[0])
        attrs = call.attrs
        if source is None or str(attrs.layout) != "NCHW":
            return None
        workload = PoolWorkload(
            "max" if is_op(call, "relax.nn.max_pool2d") else "avg",
            *source,
            _pair(attrs.pool_size),
            _pair(attrs.strides),
            _four(attrs.padding),
            _pair(attrs.dilation),
            bool(attrs.ceil_mode),
            bool(attrs.count_include_pad),
        )
        if workload.output_shape != shape:
            return None
        reads = (Read(call.args[0], source),)
        return PoolOp(self._name("pool"), var, shape, reads, frozenset(), workload)

    def _global_pool(self, var: Var, call: Call, shape: Shape4) -> LayoutOp | None:
        source = feature_map_shape(call.args[0])
        if source is None or shape != (*source[:2], 1, 1):
            return None
        if is_op(call, "relax.mean"):
            axes = sorted(int(axis) % 4 for axis in call.attrs.axis or ())
            if axes != [2, 3]:
                return None
        reads = (Read(call.args[0], source),)
        return GlobalPoolOp(self._name("global_pool"), var, shape, reads, frozenset(), "avg")

    def _concat(self, var: Var, call: Call, shape: Shape4) -> LayoutOp | None:
        parts = call.args[0]
        if isinstance(parts, Var):
            parts = self._definitions.get(parts)
        if not isinstance(parts, relax.Tuple) or int(call.attrs.axis) % 4 != 1:
            return None
        shapes = [feature_map_shape(field) for field in parts.fields]
        if None in shapes or not all(isinstance(field, Var) for field in parts.fields):
            return None
        if any(field in self._sliced for field in parts.fields):
            return self._gather(var, list(parts.fields), shape)
        reads = tuple(Read(v, s) for v, s in zip(parts.fields, shapes, strict=True) if s)
        return ConcatOp(self._name("concat"), var, shape, reads, frozenset())

    def _gather(self, var: Var, parts: list[Var], shape: Shape4) -> LayoutOp | None:
        """Concatenate ``parts``: slices of channels that nothing else reads, or feature maps."""
        reads: list[Read] = []
        slices: list[tuple[int, int]] = []
        for part in parts:
            value: Expr = self._definitions.get(part)
            run = channel_slice(value) if part in self._sliced or part.same_as(var) else None
            source = part if run is None else value.args[0]
            source_shape = feature_map_shape(source)
            if source_shape is None or source.same_as(var):
                return None
            reads.append(Read(source, source_shape))
            slices.append(run or (0, source_shape[1]))
        absorbed = frozenset(part for part in parts if part in self._sliced)
        return GatherOp(self._name("gather"), var, shape, tuple(reads), absorbed, tuple(slices))

    def _slices_of_concats(self) -> frozenset[Var]:
        """Return the slices of channels that only one concatenation of channels reads."""
        found: set[Var] = set()
        for var, value in self._definitions.items():
            if not is_op(value, "relax.concat") or int(value.attrs.axis or 0) % 4 != 1:
                continue
            allowed, fields = {var}, set(used_vars(value))
            parts = value.args[0]
            if isinstance(parts, Var):
                if set(self._readers[parts]) != {var} or parts not in self._definitions:
                    continue
                allowed, fields = fields, set(used_vars(self._definitions[parts]))
            for part in fields - self._results:
                slices = self._definitions.get(part)
                if is_op(slices, "relax.strided_slice") and allowed.issuperset(self._readers[part]):
                    found |= {part} if channel_slice(slices) is not None else set()
        return frozenset(found)

    def _elementwise(self, var: Var, call: Call, shape: Shape4) -> LayoutOp | None:
        reads = []
        for arg in call.args:
            constant = constant_value(arg)
            if constant is not None:
                if constant.size != 1 and constant.shape != (1, shape[1], 1, 1):
                    return None
            elif isinstance(arg, Var):
                part = feature_map_shape(arg)
                if part is None or part[:2] != shape[:2] or part[2:] not in (shape[2:], (1, 1)):
                    return None
                reads.append(Read(arg, part))
        if not reads:
            return None
        name = str(op_name(call)).removeprefix("relax.").removeprefix("nn.")
        return ElementwiseOp(self._name(name), var, shape, tuple(reads), frozenset(), call)

    def _nchw_reads(self, ops: list[LayoutOp]) -> dict[Var, Shape4]:
        inside = {op.result for op in ops}.union(*(op.absorbed for op in ops))
        # The tuple a concat reads is part of the concat.
        inside |= {
            var
            for var, value in self._definitions.items()
            if isinstance(value, relax.Tuple)
            and var not in self._results
            and all(reader in inside for reader in self._readers[var])
        }
        return {
            op.result: op.shape
            for op in ops
            if op.result in self._results
            or any(reader not in inside for reader in self._readers[op.result])
        }


def _conv_workload(value: Expr) -> Conv2dWorkload | None:
    """Return the workload of a 2-D convolution with constant float32 weights, else None."""
    if not is_op(value, "relax.nn.conv2d"):
        return None
    data, out = feature_map_shape(value.args[0]), feature_map_shape(value)
    weights, attrs = constant_value(value.args[1]), value.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    if data is None or out is None or weights is None or layouts != ("NCHW", "OIHW"):
        return None
    workload = Conv2dWorkload(
        *data,
        int(weights.shape[0]),
        (int(weights.shape[2]), int(weights.shape[3])),
        _pair(attrs.strides),
        _four(attrs.padding),
        _pair(attrs.dilation),
        int(attrs.groups),
    )
    return workload if workload.output_shape == out else None


def _dense_workload(value: Expr) -> DenseWorkload | None:
    """Return the workload of a float32 matrix product with constant weights, else None."""
    if not is_op(value, "relax.matmul") or not isinstance(value.args[0], Var):
        return None
    weights, rows = constant_value(value.args[1]), static_shape(value.args[0])
    if weights is None or weights.ndim != 2 or rows is None or len(rows) < 2:
        return None
    if dtype_of(value) != "float32" or weights.dtype != "float32":
        return None
    return DenseWorkload(math.prod(rows[:-1]), int(weights.shape[1]), int(weights.shape[0]))


def feature_map_shape(expr: Expr) -> Shape4 | None:
    """Return the NCHW shape of a float32 rank-4 tensor expression, else None."""
    if not isinstance(expr.ty, relax.TensorType) or dtype_of(expr) != "float32":
        return None
    shape = static_shape(expr)
    if shape is None or len(shape) != 4:
        return None
    n, c, h, w = shape
    return n, c, h, w


def _pair(values: Any) -> tuple[int, int]:
    first, second = (int(v) for v in values)
    return first, second


def _four(values: Any) -> tuple[int, int, int, int]:
    numbers = [int(v) for v in values]
    top, left, bottom, right = numbers if len(numbers) == 4 else (numbers * 4)[:4]
    return top, left, bottom, right
