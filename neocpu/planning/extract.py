"""Extract the layout operators of a simplified Relax function (paper §3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, Var

from neocpu.ir.constants import Array, StoredWeights, constant_value, stored_weights, weight_values
from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape, is_op, static_shape
from neocpu.ir.frame_calls import CONVOLUTION, folded_stored_weights, folded_weights
from neocpu.ir.uses import bindings
from neocpu.planning.fused_steps import Epilogue, Prologue, match_epilogue, match_prologue
from neocpu.planning.network import Network
from neocpu.planning.operators.conv_op import ConvOp, conv_workload
from neocpu.planning.operators.dense_forms_op import integer_forms
from neocpu.planning.operators.dense_op import (
    DenseOp,
    StoredRows,
    dense_workload,
    with_stored_weights,
)
from neocpu.planning.operators.gate_ops import with_channel_gates, with_gates
from neocpu.planning.operators.kinds import KINDS
from neocpu.planning.operators.layout_op import Function, LayoutOp, Read, Shape4
from neocpu.planning.operators.products import find_products
from neocpu.planning.quantised.grids import STORED, Grid, grid_of_rows, quantised_by
from neocpu.planning.quantised.quantised_steps import (
    ConvForm,
    float_steps,
    rounding_form,
    split,
    stored_form,
)
from neocpu.planning.tokens import find_tokens
from neocpu.schedules.operators.dense import DenseWorkload
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp


def extract(mod: tvm.IRModule, *, prologues: bool = True) -> Network:
    """Find the layout operators of ``main`` and the feature maps that must exist in NCHW. `mod` has
    gone through `neocpu.graph.simplify.simplify`. `prologues` says whether 1x1 convolutions may
    take the elementwise operators before them.
    """
    return _Extractor(mod["main"], prologues).run()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Core:
    call: Call
    workload: Any
    weights: Array
    epilogue: Epilogue
    operands: tuple[Any, ...]
    forms: tuple[ConvForm, ...] = ()
    prologue: Prologue | None = None


class _Extractor(Function):
    def __init__(self, func: relax.Function, prologues: bool) -> None:
        super().__init__(func)
        self._func = func
        self._prologues = prologues
        self._claims = {kind: kind.claims(self) for kind in KINDS}
        self._claimed: set[Var] = set().union(*self._claims.values())

    def run(self) -> Network:
        products = {op.result: op for op in find_products(self) if not op.absorbed & self._claimed}
        for op in products.values():
            self._claimed.update((op.result, *op.absorbed))
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
            else:
                found = self._layout_op(var, binding.value)
                if found is not None:
                    ops.append(found)
        ops = with_channel_gates(self, with_gates(self, ops))
        inputs = frozenset(self._func.params)
        reads = self._nchw_reads(ops)
        tokens = find_tokens(self, self._claimed)
        return Network(
            ops=tuple(ops),
            dense=tuple(dense),
            nchw_reads=reads,
            inputs=inputs,
            grids=self.grids,
            products=tuple(products.values()),
            tokens=tokens,
        )

    def _fuse_epilogues(self) -> dict[Var, _Core]:
        """Return each convolution and dense layer with its epilogue, by the last variable."""
        cores: dict[Var, _Core] = {}
        # Later operators claim a shared residual add first, because its other operand is computed
        # by then.
        for binding in reversed(list(bindings(self._func))):
            if not is_op(binding.value, "relax.nn.conv2d", CONVOLUTION, "relax.matmul"):
                continue
            if binding.var in self._claimed:  # by attention: it mixes heads
                continue
            weights = weight_values(binding.value.args[1], self._definitions)
            if weights is not None and is_op(binding.value, CONVOLUTION):
                weights = folded_weights(weights)
            convolution = conv_workload(binding.value, weights)
            workload = convolution or dense_workload(binding.value, weights)
            if workload is None or constant_value(binding.value.args[0]) is not None:
                continue  # a result of constants alone is no feature map with a layout
            assert weights is not None
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
            steps = float_steps(matched.steps, vector[-1 if convolution is None else 1])
            stored = stored_weights(binding.value.args[1], self._definitions)
            forms: tuple[ConvForm, ...] = ()
            if isinstance(workload, DenseWorkload) and stored is not None:
                forms = self._dense_forms(binding.value, workload, stored, matched)
                in_integers = with_stored_weights(workload, stored)
                if in_integers is not None:
                    workload, weights, scales = in_integers
                    steps = [(EpilogueOp("scale"), scales), *steps]
            kinds, operands = split(steps)
            fused = replace(workload, epilogue=kinds)
            if convolution is not None:
                forms = self._forms(binding.value, convolution, weights, matched)
            core = _Core(
                call=binding.value,
                workload=fused,
                weights=weights,
                epilogue=matched,
                operands=operands,
                forms=forms,
            )
            cores[matched.chain[-1]] = core
        return cores

    def _forms(
        self, call: Call, workload: Conv2dWorkload, weights: Array, matched: Epilogue
    ) -> tuple[ConvForm, ...]:
        """Return the forms of a convolution that read integers, store them, or both."""
        stored = stored_weights(call.args[1], self._definitions)
        grid, steps = self.grids.get(call.args[0]), matched.steps
        ends_on_grid = bool(steps) and isinstance(steps[-1][0], Grid)
        forms: list[ConvForm | None] = []
        if stored is not None and workload.frames is not None:
            stored = folded_stored_weights(stored) if workload.groups == 1 else None
        if stored is not None and grid is not None:
            forms += (
                stored_form(
                    workload, stored, grid, steps, self.grids, store=store, in_integers=whole
                )
                for store in ((True, False) if ends_on_grid else (False,))
                for whole in ((True, False) if workload.groups > 1 else (True,))
            )
        if ends_on_grid:
            forms.append(rounding_form(workload, weights, steps, self.grids))
        return tuple(form for form in forms if form is not None)

    def _dense_forms(
        self, call: Call, workload: DenseWorkload, stored: StoredWeights, matched: Epilogue
    ) -> tuple[ConvForm, ...]:
        grid = grid_of_rows(call.args[0], self.grids, self._definitions)
        return () if grid is None else integer_forms(workload, stored, grid, matched.steps)

    def _fuse_prologues(self, cores: dict[Var, _Core]) -> None:
        """Give convolutions the elementwise chains before them that no epilogue has taken."""
        taken = self._claimed | self._results
        for last, core in cores.items():
            if not isinstance(core.workload, Conv2dWorkload) or core.forms:
                continue
            found = match_prologue(
                core.call.args[0], core.workload, self._readers, self._definitions, taken
            )
            taken.update(found.chain)
            self._claimed.update(found.chain)
            fused = replace(core.workload, prologue=found.steps)
            cores[last] = replace(core, workload=fused, prologue=found)

    def _conv(self, core: _Core) -> ConvOp:
        workload, chain = core.workload, core.epilogue.chain
        numerics = workload.numerics
        weights = core.weights
        before = core.prologue or Prologue(core.call.args[0], (), (), ())
        gates = [v for v in before.operands if isinstance(v, Var)]
        residuals = [v for v in core.operands if isinstance(v, Var)]
        reads = [Read(before.source, workload.input_shape, numerics.data)]
        reads += [Read(var, (*workload.input_shape[:2], 1, 1), numerics.data) for var in gates]
        reads += [Read(v, workload.output_shape, numerics.output, True) for v in residuals]
        return ConvOp(
            name=self.name("conv2d"),
            result=chain[-1],
            shape=workload.output_shape,
            dtype=numerics.output,
            reads=tuple(reads),
            absorbed=frozenset((*before.chain, *chain[:-1])),
            workload=workload,
            weights=weights,
            operands=core.operands,
            before=before.operands,
            # A sum in float64 cannot overflow, and needs no array of flags.
            finite_weights=math.isfinite(weights.sum(dtype=np.float64)),
            forms=core.forms,
        )

    def _dense(self, core: _Core) -> DenseOp:
        chain, data = core.epilogue.chain, core.call.args[0]
        return DenseOp(
            name=self.name("dense"),
            result=chain[-1],
            data=data,
            absorbed=frozenset(chain[:-1]),
            workload=core.workload,
            weights=core.weights,
            operands=core.operands,
            forms=core.forms,
            readers=frozenset() if chain[-1] in self._results else self.readers(chain[-1]),
            rows=self._stored_rows(data) if core.forms else None,
        )

    def _stored_rows(self, data: Var) -> StoredRows:
        """Return the integers of a matrix on a grid, or the real numbers that round to them."""
        grid = grid_of_rows(data, self.grids, self._definitions)
        assert grid is not None
        value: Any = self._definitions.get(data)
        if is_op(value, "relax.dequantize") and feature_map_shape(data) is None:
            source, inner = value.args[0], quantised_by(value, self._definitions)
            if dtype_of(source) != STORED and inner is not None:
                source = inner.args[0]  # real numbers that are rounded to signed integers
            suits = dtype_of(source) in (STORED, "float32")
            if suits and isinstance(source, Var) and source not in self._claimed:
                return StoredRows(source, grid)
        return StoredRows(data, grid)

    def _layout_op(self, var: Var, value: Expr) -> LayoutOp | None:
        shape = feature_map_shape(value)
        if shape is None or not isinstance(value, Call):
            return None
        kinds = KINDS
        if var in self._claimed:  # only a kind that claimed it may end with it
            kinds = [kind for kind in KINDS if var in self._claims[kind]]
        found = (kind.match(self, var, value, shape) for kind in kinds)
        return next((op for op in found if op is not None), None)

    def _nchw_reads(self, ops: list[LayoutOp]) -> dict[Var, Shape4]:
        inside = {op.result for op in ops}.union(*(op.absorbed for op in ops))
        # The tuple that a concat reads is part of the concat.
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
