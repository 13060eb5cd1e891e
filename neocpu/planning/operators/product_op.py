"""Attention, and products of two activations: layout-dependent, each with one schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm.ir import Var

from neocpu.ir.constants import Array, constant_value, vector_along
from neocpu.ir.expressions import Expr, dtype_of, four_of, is_op, pair_of, static_shape
from neocpu.planning.operators.layout_op import Emitter, Function, sole_definition
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.precision import Precision
from neocpu.schedules.products import attention, mixed_attention, product
from neocpu.schedules.products.workloads import AttentionWorkload, ProductWorkload
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class HeadMix:
    """A mix of heads, of scores ``(N, heads, queries, keys)``: a 1x1 convolution whose channels are
    the heads. Dense layers over heads in talking-heads attention become such convolutions when the
    transposes around them are removed (`neocpu.graph.reordering.cancel_layouts`).
    """

    scores: Var
    # ``(heads * heads + heads,)``: the weights, a row for each resulting head, then the biases.
    constants: Array
    through: tuple[Var, ...]  # variables of the mix, in program order

    @property
    def heads(self) -> int:
        return int(static_shape(self.scores)[1])  # type: ignore[index]


def head_mix(function: Function, mixed: Expr) -> HeadMix | None:
    """Return the mix of heads that computes ``mixed``; None without one, or with more readers."""
    value: Any = sole_definition(function, mixed)
    through, bias = [mixed], None
    if is_op(value, "relax.add"):
        constant, mixed = constant_value(value.args[1]), value.args[0]
        bias = None if constant is None else vector_along(constant, 4, 1)
        if bias is None or static_shape(value) != static_shape(mixed):
            return None
        value = sole_definition(function, mixed)
        through.insert(0, mixed)
    if value is None or not is_op(value, "relax.nn.conv2d") or dtype_of(value) != "float32":
        return None
    weights, attrs = constant_value(value.args[1]), value.attrs
    heads = (static_shape(value.args[0]) or (0, 0))[1]
    plain = (pair_of(attrs.strides), four_of(attrs.padding), int(attrs.groups))
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    if weights is None or weights.shape != (heads, heads, 1, 1) or layouts != ("NCHW", "OIHW"):
        return None
    if plain != ((1, 1), (0, 0, 0, 0), 1):
        return None
    biases = np.broadcast_to(np.float32(0) if bias is None else bias, (heads,))
    constants = np.concatenate([weights.reshape(-1), biases]).astype(np.float32)
    return HeadMix(value.args[0], constants, tuple(through))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ProductOp:
    name: str
    result: Var  # variable that is read; the kernel stores it in its shape and order
    absorbed: frozenset[Var]  # scores, and reshaped or transposed factors
    workload: AttentionWorkload | ProductWorkload
    sources: tuple[Expr, ...]  # in the kernel's order, as flat tensors

    @property
    def precision(self) -> Precision:
        return Precision.BF16 if self.workload.products == BFLOAT16_PRODUCTS else Precision.FP32

    def computing(self, precision: Precision, target: CpuTarget, splits: bool = False) -> ProductOp:
        """Return the operator in the fastest numbers, by estimates; ``splits`` allows parts."""
        w = self.workload
        if isinstance(w, AttentionWorkload) and w.mixes:
            return self
        ways = [w]
        unit = target.find_dot_unit(BFLOAT16_PRODUCTS)
        in_vectors = isinstance(w, AttentionWorkload) and unit is not None and unit.intrinsic
        if precision is Precision.BF16 and (in_vectors or target.bfloat16_tiles is not None):
            ways.append(replace(w, products=BFLOAT16_PRODUCTS))
        if splits:
            ways.append(replace(w, splits=True))
        found = (replace(self, workload=way) for way in ways)
        return min(found, key=lambda op: op.estimate(target, 1))

    def as_computed_by(self, other: ProductOp) -> ProductOp:
        """Return the operator in the numbers of the same one for another size, and with views of
        as many parts, where it has only one row or column.
        """
        w, known = self.workload, other.workload
        if type(w) is not type(known):
            return self
        views = {
            name: getattr(w, name).in_parts_of(getattr(known, name))
            for name in ("q", "k", "v", "left", "right", "output")
            if hasattr(w, name)
        }
        if isinstance(w, AttentionWorkload) and isinstance(known, AttentionWorkload):
            pairs = zip(w.biases, known.biases, strict=False)
            views["biases"] = tuple(own.in_parts_of(its) for own, its in pairs)
        same = replace(w, products=known.products, splits=known.splits, **views)
        return replace(self, workload=same)

    def scheme(self, target: CpuTarget, threads: int) -> None:
        """Return None, because products have no schemes to choose from."""

    def estimate(self, target: CpuTarget, threads: int) -> float:
        if isinstance(self.workload, AttentionWorkload):
            module = mixed_attention if self.workload.mixes else attention
            return float(module.estimate(self.workload, target, threads))
        return product.estimate(self.workload, target, threads)

    def in_network(self, costs: NetworkCosts) -> NetworkTime:
        kind = self.name.rpartition("_")[0] + self.workload.products.kind
        return costs.estimated(lambda target: self.estimate(target, costs.threads), kind)

    def emit(self, emitter: Emitter) -> Var:
        kernel = emitter.kernel(
            self.name, self.workload, lambda key: _lower(key, emitter.target, emitter.threads)
        )
        args: list[Expr] = []
        for source in self.sources:
            constant = constant_value(source)
            if constant is None:
                shape = static_shape(source)
                assert shape is not None
                args.append(emitter.plain(source, (math.prod(shape),)))
            else:
                args.append(emitter.weight(constant.reshape(-1), (source, "flat")))
        shape = static_shape(self.result)
        assert shape is not None
        return emitter.call_rows(kernel, args, (self.workload.output.size,), shape, "float32")


def _lower(workload: AttentionWorkload | ProductWorkload, target: CpuTarget, threads: int) -> Any:
    if isinstance(workload, AttentionWorkload) and workload.mixes:
        return mixed_attention.lower_mixed_attention(workload, target, threads)
    if isinstance(workload, AttentionWorkload):
        return attention.lower_attention(workload, target, threads)
    return product.lower_product(workload, target, threads)
