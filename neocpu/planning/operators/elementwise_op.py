"""Elementwise calls: layout-oblivious."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm.ir import Call, Var

from neocpu.foundation.dtypes import bytes_of
from neocpu.ir.constants import constant_value
from neocpu.ir.elementwise import FINITE_ELEMENTWISE
from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape, op_name
from neocpu.planning.choice import Choice
from neocpu.planning.memory_costs import MemoryClass
from neocpu.planning.operators.layout_op import Emitter, Function, LayoutOp, Read, Shape4
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ElementwiseOp(LayoutOp):
    stays_in_registers: ClassVar[bool] = True

    call: Any

    @classmethod
    def match(
        cls, function: Function, var: Var, value: Expr, shape: Shape4
    ) -> ElementwiseOp | None:
        if op_name(value) not in FINITE_ELEMENTWISE:
            return None
        reads = []
        for arg in value.args:
            constant = constant_value(arg)
            if constant is not None:
                if constant.size != 1 and constant.shape != (1, shape[1], 1, 1):
                    return None
            elif isinstance(arg, Var):
                part = feature_map_shape(arg)
                if part is None or part[0] not in (shape[0], 1) or part[1] != shape[1]:
                    return None
                if part[2:] not in (shape[2:], (1, 1)):
                    return None
                reads.append(Read(arg, part, dtype_of(arg)))
        if not reads:
            return None
        kind = str(op_name(value)).rpartition(".")[2]
        return cls(
            name=function.name(kind),
            result=var,
            shape=shape,
            dtype=dtype_of(value),
            reads=tuple(reads),
            call=value,
        )

    def memory_class(self, layout: DataLayout) -> MemoryClass:
        return MemoryClass.ELEMENTWISE

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        constants = (constant_value(arg) for arg in self.call.args)
        return sum(
            math.prod(form.shape(array.shape)) * bytes_of(str(array.dtype))
            for array in constants
            if array is not None and array.size > 1
        )

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the call itself on constants in the same layout; fusion and lowering come later."""
        layout = choice.out_format.layout
        feature_maps = iter(reads)
        args: list[Expr] = []
        for arg in self.call.args:
            constant = constant_value(arg)
            if constant is not None and constant.size > 1:
                args.append(emitter.weight(layout.pack(constant), (arg, layout)))
            elif isinstance(arg, Var):
                args.append(next(feature_maps))
            else:
                args.append(arg)
        assert op_name(self.call) is not None
        return emitter.emit(Call(self.call.op, args, self.call.attrs, self.call.ty_args))
