"""Convolutions with their prologues and epilogues, which templates compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm.ir import Var

from neocpu.foundation.dtypes import DTYPES
from neocpu.ir.constants import Array
from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape, four_of, is_op, pair_of
from neocpu.ir.frame_calls import CONVOLUTION, frame_workload
from neocpu.planning.choice import Choice
from neocpu.planning.operators.layout_op import Emitter, LayoutOp
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.precision import Precision
from neocpu.planning.quantised.quantised_steps import ConvForm, bfloat16_forms
from neocpu.planning.weight_origin import Packing, Unpacked
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def conv_workload(value: Expr, weights: Array | None) -> Conv2dWorkload | None:
    """Return the workload of a convolution over images or depth slices; None for other values.

    `weights` are the constant OIHW weights; for depth slices, those that
    `neocpu.ir.frame_calls.folded_weights` returns. None if they are not constant.
    """
    if is_op(value, CONVOLUTION):
        return None if weights is None else frame_workload(value)
    if not is_op(value, "relax.nn.conv2d"):
        return None
    data, out = feature_map_shape(value.args[0]), feature_map_shape(value)
    attrs = value.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    if data is None or out is None or weights is None or layouts != ("NCHW", "OIHW"):
        return None
    batch, in_channels, height, width = data
    workload = Conv2dWorkload(
        batch=batch,
        in_channels=in_channels,
        height=height,
        width=width,
        out_channels=int(weights.shape[0]),
        kernel=(int(weights.shape[2]), int(weights.shape[3])),
        stride=pair_of(attrs.strides),
        padding=four_of(attrs.padding),
        dilation=pair_of(attrs.dilation),
        groups=int(attrs.groups),
        numerics=Numerics.uniform(dtype_of(value)),
    )
    return workload if workload.output_shape == out else None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ConvOp(LayoutOp):
    """A convolution with its epilogue: the only operator with schemes to choose from."""

    workload: Conv2dWorkload
    weights: NDArray[np.generic]  # OIHW
    operands: tuple[Any, ...]  # of the epilogue's steps: ``(C,)`` vectors and feature maps
    before: tuple[Any, ...] = ()  # of the prologue: ``(C,)`` vectors, ``(N, C, 1, 1)`` gates
    finite_weights: bool = True  # whether no weight is infinite or NaN
    forms: tuple[ConvForm, ...] = ()  # ways to compute it that read or store integers or bfloat16
    in_float: bool = True  # whether float32, of `weights` and `operands`, is allowed

    def computing(self, precision: Precision, target: CpuTarget, small: bool = False) -> ConvOp:
        if precision is Precision.BF16:
            own = () if self.forms else bfloat16_forms(self.workload, self.weights, self.operands)
        else:
            own = () if precision is Precision.FP32 else self.forms
        found = (form.on(target) for form in own)
        # The first of several forms that read and write the same types is kept.
        first = {form.types: form for form in reversed([form for form in found if form])}
        forms = tuple(reversed(first.values()))
        reading = tuple(f for f in forms if not f.workload.numerics.reads_float32)
        if small and reading:
            return replace(self, forms=reading, in_float=False)
        return replace(self, forms=forms)

    @property
    def ways(self) -> tuple[tuple[Conv2dWorkload, bool], ...]:
        """The workloads that decide its choices, each with whether the weights are finite.

        Forms that read float32 and store integers are not among them: see `rounds`.
        """
        in_float = ((self.workload, self.finite_weights),) if self.in_float else ()
        forms = (form for form in self.forms if not form.workload.numerics.reads_float32)
        return (*in_float, *((form.workload, self._is_finite(form)) for form in forms))

    def _is_finite(self, form: ConvForm) -> bool:
        return self.finite_weights or DTYPES[form.workload.numerics.data].is_integer

    @property
    def rounds(self) -> bool:
        """Whether float32 may be stored as integers."""
        return any(form.workload.numerics.reads_float32 for form in self.forms)

    def describe(self, choice: Choice) -> str:
        return str(self.form(choice).workload)

    def numerics(self, choice: Choice) -> Numerics:
        return self.form(choice).workload.numerics

    def error_factor(self, choice: Choice) -> float:
        assert choice.scheme is not None
        return registry.error_bound(choice.scheme, self.form(choice).workload)

    def proof(self, choice: Choice) -> SumBound | None:
        assert choice.scheme is not None
        return registry.proof(choice.scheme, self.form(choice).workload)

    @property
    def flops(self) -> int:
        return self.workload.flops

    def in_network(self, choice: Choice, costs: NetworkCosts) -> NetworkTime:
        return costs.convolution(self.form(choice).workload, choice)

    def form(self, choice: Choice) -> ConvForm:
        """Return the way to compute it that reads and writes the formats of ``choice``."""
        types = (choice.in_format.dtype, choice.out_format.dtype)
        own = ConvForm(self.workload, self.weights, self.operands)
        return next(f for f in (own, *self.forms) if f.types == types)

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        scheme, form = choice.scheme, self.form(choice)
        assert scheme is not None
        workload = form.workload
        kernel = emitter.kernel(
            self.name,
            (workload, scheme),
            lambda key: registry.lower(key[0], scheme, emitter.target, emitter.threads),
        )
        weights = registry.given_weights(form.weights, workload, scheme)
        packed = Packing(
            source=weights, make=lambda: registry.pack_weights(weights, workload, scheme)
        )
        origin = Unpacked.known(weights, registry.weight_layout(workload, scheme))
        args = [reads[0], emitter.weight(packed, origin=origin)]
        if workload.pads_with_zero_point:
            border = np.full(scheme.in_layout.block, form.zero, workload.numerics.data)
            args.append(emitter.weight(border))
        feature_maps = iter(reads[1:])
        for layout, operands in (
            (scheme.in_layout, self.before),
            (scheme.out_layout, form.operands),
        ):
            for operand in operands:
                if isinstance(operand, Var):
                    args.append(next(feature_maps))
                else:
                    args.append(emitter.weight(layout.pack_channels(operand)))
        return emitter.call(kernel, args, choice.out_format, self.shape)
