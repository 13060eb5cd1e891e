"""A convolution template and a layout-tolerant operator that the project does not have.

All code of both is in this file, which CONTRIBUTING.md explains.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import te, tirx
from tvm.s_tir import Schedule

from neocpu.ir.expressions import dtype_of, feature_map_shape, is_op
from neocpu.planning.operators.kinds import KINDS
from neocpu.planning.operators.layout_op import LayoutOp, Read
from neocpu.schedules import registry
from neocpu.schedules.operators.epilogue import apply_epilogue, convolution_arguments
from neocpu.schedules.operators.pool import lower_global_pool
from neocpu.schedules.vocabulary.layout import KernelLayout
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.scheme import BlockedScheme
from neocpu.schedules.vocabulary.template import ConvTemplate


@dataclass(frozen=True, slots=True)
class ToyScheme(BlockedScheme):
    """A block of input channels, and one of output channels."""

    template: ClassVar[str] = "conv2d_toy"

    @property
    def kernel_layout(self) -> KernelLayout:
        return KernelLayout(self.ic_bn, self.oc_bn)


def applies(workload, target):
    plain = workload.groups == 1 and workload.dilation == (1, 1) and not workload.prologue
    return workload.numerics == FLOAT32 and plain


def space(workload, target):
    lanes = target.dot_unit(workload.numerics).lanes
    return (ToyScheme(lanes, lanes), ToyScheme(4, lanes))


def pack_weights(weights, workload, scheme):
    return scheme.kernel_layout.pack(weights)


def argument_shapes(workload, scheme):
    weights = scheme.kernel_layout.shape(workload.kernel_shape)
    return convolution_arguments(workload, scheme, weights)


def lower(workload, scheme, target, threads=1):
    (read, read_type), (stored, stored_type), *_ = argument_shapes(workload, scheme)
    data = te.placeholder(read, read_type, name="data")
    weights = te.placeholder(stored, stored_type, name="weights")
    chunk, lane = te.reduce_axis((0, read[1])), te.reduce_axis((0, scheme.ic_bn))
    kh, kw = (te.reduce_axis((0, extent)) for extent in workload.kernel)
    top, left = workload.padding[:2]

    def product(n, c, h, w, o):
        y = h * workload.stride[0] + kh - top
        x = w * workload.stride[1] + kw - left
        inside = tirx.all(y >= 0, y < workload.height, x >= 0, x < workload.width)
        pixel = tirx.if_then_else(inside, data(n, chunk, y, x, lane), tirx.const(0, read_type))
        return te.sum(pixel * weights(c, chunk, kh, kw, lane, o), axis=[chunk, kh, kw, lane])

    shape = scheme.out_layout.shape(workload.output_shape)
    conv = te.compute(shape, product, name="conv")
    output, operands = apply_epilogue(conv, workload, scheme.out_layout)
    sch = Schedule(te.create_prim_func([data, weights, *operands, output]))
    sch.parallel(sch.get_loops(sch.get_sblock("conv"))[1])
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def estimate(workload, scheme, target, threads=1):
    return workload.flops / target.frequency / threads


TEMPLATE = ConvTemplate(
    scheme=ToyScheme,
    version=1,
    applies=applies,
    space=space,
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
    pack_weights=pack_weights,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GlobalMaxOp(LayoutOp):
    """A maximum over all pixels."""

    @classmethod
    def match(cls, function, var, value, shape):
        if not is_op(value, "relax.max"):
            return None
        source = feature_map_shape(value.args[0])
        axes = sorted(int(axis) % 4 for axis in value.attrs.axis or ())
        if source is None or axes != [2, 3] or shape != (*source[:2], 1, 1):
            return None
        dtype = dtype_of(value)
        return cls(
            name=function.name("global_max"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=(Read(value.args[0], source, dtype),),
            absorbed=frozenset(),
        )

    def emit(self, emitter: Any, choice: Any, reads: list[Any]) -> Any:
        form, shape = choice.out_format, self.reads[0].shape
        kernel = emitter.kernel(
            self.name,
            ("max", shape, form),
            lambda key: lower_global_pool("max", key[1], form, emitter.target),
        )
        return emitter.call(kernel, list(reads), form, self.shape)


@contextmanager
def registered() -> Iterator[None]:
    """Register both for the duration of the context."""
    registry.register(TEMPLATE)
    KINDS.append(GlobalMaxOp)
    try:
        yield
    finally:
        KINDS.remove(GlobalMaxOp)
        registry.unregister(TEMPLATE.name)


if "pytest" not in sys.modules:  # a measuring process of tuning, which meets its schemes
    registry.register(TEMPLATE)
