"""The bytes of weights of a network and of a plan.

A kernel may need more weights than the model has: Winograd's transform makes up to nine times as
many, and blocks of channels are padded to whole blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from neocpu.foundation.dtypes import bytes_of
from neocpu.ir.constants import constant_value, stored_weights
from neocpu.ir.expressions import Expr
from neocpu.ir.uses import bindings
from neocpu.plan.outcome import WeightSizes
from neocpu.planning.network import Network
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.steps import NO_OPERAND, PER_CHANNEL
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

Packing: TypeAlias = tuple[str, tuple[int, ...], str]
"""A template, and the shape and element type of its packed weights."""


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """The weights of a network, whatever its plan."""

    original: int  # bytes of all weights in the simplified model
    fixed: int  # packed bytes of weights that no plan changes: of operators without layouts

    def sizes(self, packed: Iterable[NDArray[np.generic]], limit: int | None) -> WeightSizes:
        size = sum(array.nbytes for array in packed)
        return WeightSizes(given_bytes=self.original, packed_bytes=size, limit_bytes=limit)


def weights_of(mod: tvm.IRModule, network: Network, target: CpuTarget, threads: int) -> WeightBytes:
    """Measure the weights of ``main``, whose operators are ``network``'s."""
    layers: list[ConvOp | DenseOp] = [*network.convs, *network.dense]
    dense_packed = sum(
        op.packed_bytes(target, threads) + sum(_arrays_of(op.operands)) for op in network.dense
    )
    owned = {var for layer in layers for var in (layer.result, *layer.absorbed)}
    # Constants that these read are counted for each of their formats.
    priced = {var for op in network.ops for var in (op.result, *op.absorbed)}
    original: dict[Expr, int] = {}
    plain: dict[Expr, int] = {}
    for binding in bindings(mod["main"]):
        if binding.var in owned or stored_weights(binding.value, {}) is not None:
            continue
        for const in _leaves(binding.value):
            if (array := _weight(const)) is not None:
                original[const] = array.nbytes
                if binding.var not in priced:
                    plain[const] = array.nbytes
    of_layers = sum(map(_original_bytes, layers))
    return WeightBytes(
        original=of_layers + sum(original.values()), fixed=dense_packed + sum(plain.values())
    )


def packing(workload: Conv2dWorkload, scheme: Scheme) -> Packing:
    """Return the packing that ``scheme`` reads: equal ones read the same bytes at any batch."""
    _, (shape, dtype), *_ = registry.argument_shapes(workload, scheme)
    return scheme.template, shape, dtype


def packed_bytes(workload: Conv2dWorkload, scheme: Scheme) -> int:
    """Return the bytes of weights and per-channel operands of a convolution by ``scheme``."""
    _, weights, *operands, _ = registry.argument_shapes(workload, scheme)
    border = [operands.pop(0)] if workload.pads_with_zero_point else []
    reading = [op for op in (*workload.prologue, *workload.epilogue) if op.operand != NO_OPERAND]
    vectors = [
        shape for shape, op in zip(operands, reading, strict=True) if op.operand == PER_CHANNEL
    ]
    return sum(_size(*argument) for argument in (weights, *border, *vectors))


def _weight(expr: Expr) -> NDArray[np.generic] | None:
    """Return the value of a constant, but not of a scalar: scalars stay in the code."""
    array = constant_value(expr)
    return None if array is None or array.size <= 1 else array


def _original_bytes(op: ConvOp | DenseOp) -> int:
    before = op.before if isinstance(op, ConvOp) else ()
    return op.weights.nbytes + sum(_arrays_of((*before, *op.operands)))


def _arrays_of(operands: tuple[Any, ...]) -> Iterator[int]:
    return (operand.nbytes for operand in operands if isinstance(operand, np.ndarray))


def _size(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * bytes_of(dtype)


def _leaves(value: Expr) -> Iterator[Expr]:
    if isinstance(value, relax.Tuple):
        for part in value.fields:
            yield from _leaves(part)
    elif isinstance(value, tvm.ir.Call):
        for arg in value.args:
            yield from _leaves(arg)
    else:
        yield value
