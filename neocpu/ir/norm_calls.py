"""Rows that are divided by their norms, as in RMS and L2 normalisation, as calls in Relax.

Relax has no operator for L2 normalisation, and none for all forms of RMS normalisation in networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

import numpy as np
import tvm
from tvm import relax, te
from tvm.ir import Call, Op

from neocpu.ir.constants import make_const
from neocpu.ir.expressions import Expr, integers_of, known_shape, register_operator
from neocpu.schedules.operators.statistics.normalization import Root, divide_by_root

DIVISION: Final = "neocpu.divide_by_root"

TAKES_ELEMENTWISE: Final = 4
"""TVM's ``kOutEWiseFusable``: an ``op_pattern`` with which elementwise operators after it fuse."""


def division(data: Expr, axes: Sequence[int], root: Root, *, centred: bool) -> Call:
    """Return the call that divides data by the root of their squares along ``axes``.

    The call has a scale and a shift as further arguments: ones and zeros with the extents of
    ``axes``.

    Data are float32 with a static shape, and `axes` rise, none below zero. If `centred`, the mean
    is subtracted first.
    """
    shape = known_shape(data)
    extents = [shape[axis] for axis in axes]
    affine = [make_const(np.full(extents, value, np.float32)) for value in (1, 0)]
    attrs = tvm.ir.make_node("ir.DictAttrs", axes=list(axes), centred=centred, **asdict(root))
    return Call(Op.get(DIVISION), [data, *affine], attrs)


def normalised_axes(call: Call) -> list[int]:
    """Return the axes of a layer normalisation, or of a `division`."""
    axes = call.attrs["axes"] if call.op.name == DIVISION else call.attrs.axes
    return integers_of(axes)


def _type(call: Call, _: relax.BlockBuilder) -> relax.Type:
    return call.args[0].ty


def _legalised(bb: relax.BlockBuilder, call: Call) -> Expr:
    attrs = call.attrs
    axes, centred = integers_of(attrs["axes"]), bool(attrs["centred"])
    root = Root(*(float(attrs[field.name]) for field in fields(Root)))

    def computed(data: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        return divide_by_root(data, gamma, beta, axes, root, centred=centred)

    fusing = {"op_pattern": TAKES_ELEMENTWISE}
    return bb.call_te(
        computed, *call.args, primfunc_name_hint="divide_by_root", primfunc_attrs=fusing
    )


register_operator(DIVISION, _type, _legalised)
