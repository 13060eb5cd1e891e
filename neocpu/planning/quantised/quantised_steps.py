"""The steps of a convolution whose results are quantised: in float32, and from integer sums.

A chain of steps may contain grids, to which values are rounded. In float32, the rounding is written
as other steps. If sums are integers, a bias and the data's zero point come first, as integers.
Scales are merged as far as positive factors commute with the steps between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm.ir import Var

from neocpu.foundation.bfloat16 import NAME
from neocpu.ir.constants import Array, StoredWeights
from neocpu.planning.quantised.grids import STORED, Grid
from neocpu.schedules import registry
from neocpu.schedules.convolutions.dot_products.int16_sums import SUM_BOUND, largest_sums
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.numerics import FLOAT32, INT16_SUMS, Numerics, Quantisation
from neocpu.schedules.vocabulary.steps import NO_OPERAND
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

Step: TypeAlias = tuple[EpilogueOp | Grid, Any]
"""A step, or the grid that values are rounded to, and the operand of the step, if any."""

_LARGEST: Final = 255.0
# Sums are exact below these limits, in int32 and in float32.
_SUM_LIMIT: Final = 2**31
_FLOAT_LIMIT: Final = 2**24
_WHOLE: Final = (1e-4, 1e-6)  # absolute and relative distance of a scaled bias from an integer


@dataclass(frozen=True, slots=True, eq=False)
class ConvForm:
    """The computation of a convolution in certain numbers."""

    workload: Conv2dWorkload
    weights: Array  # OIHW
    operands: tuple[Any, ...]  # of the epilogue's steps: ``(C,)`` vectors and feature maps
    zero: int = 0  # number that stands for 0 in the data

    def on(self, target: CpuTarget) -> ConvForm | None:
        numerics = self.workload.numerics
        if not registry.is_computed(self.workload, target):
            return None
        unit = target.find_dot_unit(numerics)
        known = replace(numerics, int16_sums=0 if unit is None else unit.int16_sums)
        return replace(self, workload=replace(self.workload, numerics=known))

    @property
    def types(self) -> tuple[str, str]:
        return self.workload.numerics.data, self.workload.numerics.output


def float_steps(steps: Sequence[Step], channels: int) -> list[Step]:
    """Return the steps with rounding to a grid written as steps that result in float32."""
    found: list[Step] = []
    for op, operand in steps:
        if isinstance(op, Grid):
            found = _without_clips(found, op)
            found += [*_rounded(op, channels), *_real(op, channels)]
        else:
            found.append((op, operand))
    return found


def stored_form(
    workload: Conv2dWorkload,
    weights: StoredWeights,
    data: Grid,
    steps: Sequence[Step],
    grids: Mapping[Var, Grid],
    *,
    store: bool,
    in_integers: bool = True,
) -> ConvForm | None:
    """Return a convolution of integers with exact sums; None if the numbers do not allow it.

    `workload` is the convolution in float32 without its epilogue, whose steps are `steps`. `grids`
    has the grids of feature maps that steps read. `store` says whether the results, which the last
    step rounds to a grid, are stored as integers; if not, as float32. `in_integers` says whether
    products are added up as integers; if not, in float32, which is exact for few products.
    """
    centred = weights.centred
    limit, kind = (_SUM_LIMIT, np.int32) if in_integers else (_FLOAT_LIMIT, np.float64)
    per_output = weights.scale.size == 1 or weights.axis == 0
    bound = np.abs(centred.astype(np.int64)).sum(axis=(1, 2, 3)) * int(_LARGEST)
    if not per_output or centred.min() < -128 or centred.max() > 127 or bound.max() >= limit:
        return None
    channels = workload.out_channels
    scale = np.float64(data.scale) * np.broadcast_to(weights.scale.reshape(-1), (channels,))
    rest = list(steps)
    asymmetric = (any(workload.padding) or reads_outside(workload)) and data.zero != 0
    sums = -data.zero * centred.astype(np.int64).sum(axis=(1, 2, 3))
    if asymmetric and not in_integers:
        sums = np.zeros_like(sums)  # the kernel subtracts the zero point from the data
    if rest and rest[0][0] == EpilogueOp("bias_add"):
        whole = _whole_bias(rest[0][1], scale)
        if whole is not None and (bound + np.abs(whole)).max() < limit:
            sums, rest = sums + whole, rest[1:]
    found: list[Step] = []
    if sums.any():
        found.append((EpilogueOp("bias_add"), sums.astype(kind)))
    found.append((EpilogueOp("rescale"), scale))
    following = _following(found, rest, grids, channels, store=store)
    if following is None:
        return None
    epilogue, operands = split(_merged(following))
    kinds = ("int8", "int32") if in_integers else ("float32", "float32")
    numerics = Numerics(
        data=STORED,
        weights=kinds[0],
        sum=kinds[1],
        output=STORED if store else "float32",
        quantised=(("data", Quantisation("tensor", symmetric=not asymmetric)),),
        int16_sums=_int16_sums(centred) if in_integers else 0,
    )
    return ConvForm(
        replace(workload, numerics=numerics, epilogue=epilogue),
        centred.astype(kinds[0]),
        operands,
        data.zero,
    )


def rounding_form(
    workload: Conv2dWorkload, weights: Array, steps: Sequence[Step], grids: Mapping[Var, Grid]
) -> ConvForm | None:
    """Return a convolution of float32 whose results, rounded to a grid, are stored as integers.

    None if a step reads a feature map that is on no grid. The arguments are those of `stored_form`,
    but the weights are real numbers.
    """
    following = _following([], steps, grids, workload.out_channels, store=True)
    if following is None:
        return None
    epilogue, operands = split(_merged(following))
    numerics = Numerics(data="float32", weights="float32", sum="float32", output=STORED)
    return ConvForm(replace(workload, numerics=numerics, epilogue=epilogue), weights, operands)


def _following(
    before: list[Step],
    steps: Sequence[Step],
    grids: Mapping[Var, Grid],
    channels: int,
    *,
    store: bool,
) -> list[Step] | None:
    """Return both steps without grids; None if impossible. Stored integers need stored operands."""
    found = list(before)
    for index, (op, operand) in enumerate(steps):
        last = index == len(steps) - 1
        if isinstance(op, Grid):
            found = _without_clips(found, op) + _rounded(op, channels)
            found += [] if last and store else _real(op, channels)
        elif isinstance(operand, Var) and store:
            grid = grids.get(operand)
            if grid is None or op.kind != "add":
                return None
            found += [(EpilogueOp("scale"), _vector(1 / grid.scale, channels))]
            found += _moved(-grid.zero, channels)
            found += [(op, operand), (EpilogueOp("scale"), _vector(grid.scale, channels))]
        else:
            found.append((op, operand))
    return found


def _int16_sums(weights: Array) -> int:
    """Return the products whose sum fits 16 bits, for `Numerics.int16_sums`; 0 if not even two."""
    fitting = (n for n in reversed(INT16_SUMS) if largest_sums(weights, n).max() <= SUM_BOUND)
    return next(fitting, 0)


def split(steps: Sequence[Step]) -> tuple[tuple[EpilogueOp, ...], tuple[Any, ...]]:
    """Return the kinds of steps, and their operands with the element types that kernels read."""
    kinds, operands = [], []
    for op, operand in steps:
        assert isinstance(op, EpilogueOp)
        kinds.append(op)
        if op.operand == NO_OPERAND:
            continue
        real = isinstance(operand, np.ndarray) and operand.dtype == np.float64
        operands.append(operand.astype(np.float32) if real else operand)
    return tuple(kinds), tuple(operands)


def _vector(value: float, channels: int) -> Array:
    return np.full(channels, value, np.float64)


def _moved(by: float, channels: int) -> list[Step]:
    return [(EpilogueOp("bias_add"), _vector(by, channels))] if by else []


def _rounded(grid: Grid, channels: int) -> list[Step]:
    return [
        (EpilogueOp("scale"), _vector(1 / grid.scale, channels)),
        (EpilogueOp("quantise", (float(grid.zero),)), None),
    ]


def _real(grid: Grid, channels: int) -> list[Step]:
    return [*_moved(-grid.zero, channels), (EpilogueOp("scale"), _vector(grid.scale, channels))]


def _without_clips(steps: list[Step], grid: Grid) -> list[Step]:
    """Return the steps without clips at the end whose range contains that of the grid."""
    while steps:
        op = steps[-1][0]
        if op == EpilogueOp("relu"):
            low, high = 0.0, np.inf
        elif isinstance(op, EpilogueOp) and op.kind == "clip":
            low, high = op.args
        else:
            break
        # A clip may go if values beyond it round to the first or the last stored number.
        if low / grid.scale + grid.zero >= 0.5 or high / grid.scale + grid.zero <= _LARGEST - 0.5:
            break
        steps = steps[:-1]
    return steps


def _whole_bias(bias: Array, scale: Array) -> Array | None:
    """Return a bias as integers, in units of the products' scale; None if it is not whole."""
    quotient = bias.astype(np.float64) / scale
    whole = np.rint(quotient)
    close = np.abs(quotient - whole) <= _WHOLE[0] + _WHOLE[1] * np.abs(whole)
    return whole.astype(np.int64) if close.all() and np.abs(whole).max() < _SUM_LIMIT else None


def _merged(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with each scale moved to the front as far as it commutes, and merged."""
    found: list[Step] = []
    for op, operand in steps:
        if op == EpilogueOp("scale") and isinstance(operand, np.ndarray) and (operand > 0).all():
            _scale(found, operand)
        elif (
            op == EpilogueOp("bias_add") and found and found[-1][0] == op and _real_bias(found[-1])
        ):
            found[-1] = (op, found[-1][1] + operand)
        else:
            found.append((op, operand))
    return found


def _scale(steps: list[Step], factor: Array) -> None:
    """Multiply the result of ``steps`` by a factor, as early as it commutes."""
    after: list[Step] = []
    while steps:
        op, operand = steps[-1]
        assert isinstance(op, EpilogueOp)
        if op.kind in ("scale", "rescale"):
            steps[-1] = (op, operand * factor)
            steps.extend(reversed(after))
            return
        if op.kind == "bias_add" and _real_bias(steps[-1]):
            after.append((op, operand * factor))
        elif op.kind in ("relu", "leaky_relu"):
            after.append((op, operand))
        else:
            break
        steps.pop()
    steps.append((EpilogueOp("scale"), factor))
    steps.extend(reversed(after))


def _real_bias(step: Step) -> bool:
    operand = step[1]
    return isinstance(operand, np.ndarray) and operand.dtype != np.int32


def bfloat16_forms(
    workload: Conv2dWorkload, weights: NDArray[Any], operands: tuple[Any, ...]
) -> tuple[ConvForm, ...]:
    """Return the forms of a float32 convolution that read bfloat16, and write it or float32.

    The instructions on bfloat16 add up channels, which depthwise convolutions do not. These keep
    their float32 weights: their data are widened, and half as many bytes move.

    Convolutions with a prologue, or with groups on volumes, have none. The templates know which
    forms a CPU computes. The weights are those of float32: see `registry.given_weights`.
    """
    volumes_in_groups = workload.groups > 1 and workload.frames is not None
    if workload.numerics != FLOAT32 or workload.prologue or volumes_in_groups:
        return ()
    kinds = [] if workload.is_depthwise else [NAME]
    kinds += ["float32"] * (workload.groups > 1)  # with data that are widened first
    return tuple(
        ConvForm(
            replace(
                workload, numerics=Numerics(data=NAME, weights=kind, sum="float32", output=output)
            ),
            weights,
            operands,
        )
        for kind in kinds
        for output in (NAME, "float32")
    )
