"""Find attention and other products of activations, and the tensors in memory that they read.

Exporters write attention as a product of queries and transposed keys, a softmax, and a product with
the values. Scales come before the first product, on either side, or after it; biases or masks may
be added to it. Reshapes and transposes split off heads and join them again. They become part of how
the kernel reads and writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from tvm.ir import Call, Var

from neocpu.ir.constants import constant_value, make_const, weight_values
from neocpu.ir.expressions import Expr, dtype_of, is_op, permutation_of, static_shape
from neocpu.ir.views import Seen, seen, stored
from neocpu.planning.operators.layout_op import Function, read_within, sole_definition, sole_reader
from neocpu.planning.operators.product_op import HeadMix, ProductOp, head_mix
from neocpu.schedules.products.mixed_attention import MOST_SCORES
from neocpu.schedules.products.workloads import AttentionWorkload, ProductWorkload
from neocpu.schedules.vocabulary.strided_view import StridedView
from neocpu.schedules.vocabulary.traced_sizes import for_any_size

FEWEST_ROWS = 4
"""The fewest rows and columns of a product for which packing one of its factors pays."""

MOST_STEPS = 12
"""The most operators from a product to its softmax: a scale, two biases and their reshapes are
five. The limit bounds the search: both operands of a sum are followed, and may be the same."""


def find_products(function: Function) -> Iterator[ProductOp]:
    """Yield attention, then the other products of activations; none is part of another."""
    taken: set[Var] = set()
    read: set[Expr] = set()
    definitions = function.definitions()
    for match in (_attention, _product):
        # Variables that other products make or absorb are hidden: absorbed ones do not exist.
        visible = {var: value for var, value in definitions.items() if var not in taken}
        for var, value in reversed(visible.items()):
            if var in taken or not is_op(value, "relax.matmul"):
                continue
            found = match(function, visible, read, var, value)
            # A product may read a variable that it would absorb, as where scores are added to
            # themselves before the softmax.
            if found is not None and found.absorbed.isdisjoint((*taken, *found.sources)):
                taken |= {*found.absorbed, var, found.result}
                read.update(found.sources)
                yield found


@dataclass(frozen=True, slots=True, eq=False)
class _Factors:
    """Both factors of a product, as views over the batch's axes and two of their own."""

    batch: tuple[int, ...]
    left: Seen
    right: Seen

    @property
    def through(self) -> tuple[Var, ...]:
        return (*self.left.through, *self.right.through)

    @property
    def scale(self) -> float:
        return self.left.scale * self.right.scale


def _factors(call: Call, definitions: Mapping[Var, Expr], *, scaled: bool) -> _Factors | None:
    shape = static_shape(call)
    if shape is None or len(shape) < 2 or 0 in shape or dtype_of(call) != "float32":
        return None
    sides: list[Seen] = []
    for arg in call.args:
        own = static_shape(arg)
        if own is None or len(own) < 2:
            return None
        side = _regular(arg, (*shape[:-2], *own[-2:]), definitions, scaled)
        if side is None:
            return None
        sides.append(side)
    return _Factors(shape[:-2], *sides)


def _regular(
    tensor: Expr, shape: Sequence[int], definitions: Mapping[Var, Expr], scaled: bool
) -> Seen | None:
    """Return a tensor, broadcast to ``shape``, as a view whose last two axes are regular.

    The view is of another tensor if it can be, else of the tensor itself; None if neither can.
    """
    for found in (seen(tensor, definitions, scaled=scaled), stored(tensor)):
        view = None if found is None else found.view.broadcast(shape)
        if found is not None and view is not None and _has_matrices(view):
            return replace(found, view=view)
    return None


def _has_matrices(view: StridedView) -> bool:
    last = len(view.axes) - 1
    return view.is_regular(last) and view.is_regular(last - 1)


def _in_rows(view: StridedView) -> bool:
    """Whether rows' or columns' elements lie side by side; else heads would share cache lines."""
    last = len(view.axes) - 1
    return 1 in (view.stride(last), view.stride(last - 1))


def _product(
    function: Function, visible: Mapping[Var, Expr], read: Set[Expr], var: Var, call: Call
) -> ProductOp | None:
    factors = _factors(call, visible, scaled=True)
    if factors is None or not math.isfinite(factors.scale):
        return None
    weights = weight_values(call.args[1], function.definitions())
    if weights is not None and (weights.ndim == 2 or constant_value(call.args[0]) is not None):
        return None  # a dense layer, or a constant
    result, output, after = _written(function, var, read)
    depth, columns = factors.right.view.shape[-2:]
    rows = factors.left.view.shape[-2]
    if min(rows, columns) < FEWEST_ROWS and not for_any_size():
        return None
    workload = ProductWorkload(
        batch=factors.batch,
        rows=rows,
        columns=columns,
        depth=depth,
        scale=factors.scale,
        left=factors.left.view,
        right=factors.right.view,
        output=output,
    )
    sources = [factors.left.source, factors.right.source]
    rank = len(factors.batch)
    if output.stride(rank + 1) != 1 and output.stride(rank) == 1:
        workload, sources = workload.transposed(), sources[::-1]
    absorbed = read_within(function, {*factors.through, var, *after} - {result}, {result})
    return ProductOp(
        name=function.name("product"),
        result=result,
        absorbed=absorbed,
        workload=workload,
        sources=tuple(sources),
    )


def _attention(
    function: Function, visible: Mapping[Var, Expr], read: Set[Expr], var: Var, call: Call
) -> ProductOp | None:
    shape, own = static_shape(call), static_shape(call.args[1])
    after = head_mix(function, call.args[0])
    scores = _softmax_of(function, call.args[0] if after is None else after.scores)
    if scores is not None and after is not None:
        scores = replace(scores, through=(*scores.through, *after.through))
    if shape is None or own is None or len(own) < 2 or scores is None:
        return None
    batch = shape[:-2]
    queries, (keys, width) = shape[-2], own[-2:]
    if scores.product.left.view.shape[-2] != queries or scores.product.right.view.shape[-1] != keys:
        return None
    values = _regular(call.args[1], (*batch, keys, width), visible, scaled=False)
    depth = scores.product.left.view.shape[-1]
    q = _over(scores.product.left, (*batch, queries, depth))
    k = _over(scores.product.right, (*batch, depth, keys))
    over = (_over(one, (*batch, queries, keys)) for one in scores.biases)
    biases = [bias for bias in over if bias is not None]
    if values is None or q is None or k is None or len(biases) < len(scores.biases):
        return None
    if any(bias.view.stride(len(batch) + 1) not in (0, 1) for bias in biases):
        return None
    mixes = [mix for mix in (scores.mix, after) if mix is not None]
    if mixes and not _can_mix(scores, mixes, batch, keys):
        return None
    result, output, after_product = _written(function, var, read)
    k = replace(k, view=k.view.permuted((*range(len(batch)), len(batch) + 1, len(batch))))
    workload = AttentionWorkload(
        batch=batch,
        queries=queries,
        keys=keys,
        depth=depth,
        width=width,
        scale=scores.scale,
        q=q.view,
        k=k.view,
        v=values.view,
        output=output,
        biases=tuple(bias.view for bias in biases),
        zeros=scores.zeros,
        mixed_before=scores.mix is not None,
        mixed_after=after is not None,
    )
    operands = (q, k, values, *biases)
    through = {*scores.through, var, *after_product}
    through.update(inner for one in operands for inner in one.through)
    absorbed = read_within(function, through - {result}, {result})
    sources = (*(one.source for one in operands), *(make_const(mix.constants) for mix in mixes))
    return ProductOp(
        name=function.name("attention"),
        result=result,
        absorbed=absorbed,
        workload=workload,
        sources=sources,
    )


def _can_mix(scores: _Scores, mixes: Sequence[HeadMix], batch: Sequence[int], keys: int) -> bool:
    """Whether heads are the last axis of the batch, and few enough for one kernel with all."""
    heads = batch[-1] if len(batch) == 2 else 0
    same = all(mix.heads == heads for mix in mixes) and not scores.zeros
    return same and heads * keys <= MOST_SCORES


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Scores:
    """The operand of a softmax: a scaled product plus biases."""

    product: _Factors
    scale: float  # factor above zero
    biases: tuple[Seen, ...]
    through: tuple[Var, ...]  # all variables from the product on
    zeros: bool = False  # whether zeros replace the softmax where it is NaN
    mix: HeadMix | None = None  # mix of heads before the softmax


def _softmax_of(function: Function, weights: Expr) -> _Scores | None:
    """Return the scores if ``weights`` are their softmax, perhaps reshaped; else None."""
    value: Any = sole_definition(function, weights)
    if is_op(value, "relax.reshape"):
        return _followed(_softmax_of(function, value.args[0]), weights)
    if is_op(value, "relax.where"):
        return _zeros_for_nan(function, value, weights)
    return _of_softmax(function, value, weights)


def _zeros_for_nan(function: Function, where: Call, weights: Var) -> _Scores | None:
    """Match ``where(isnan(w), 0, w)``, which PyTorch writes where masks may hide all keys."""
    condition, zero, own = where.args
    test: Any = sole_definition(function, condition)
    number = constant_value(zero)
    if not is_op(test, "relax.isnan") or not test.args[0].same_as(own) or function.is_result(own):
        return None
    if number is None or number.any() or set(function.readers(own)) != {condition, weights}:
        return None
    scores = _of_softmax(function, function.definition(own), own)
    if scores is None or static_shape(own) != static_shape(weights):
        return None
    return replace(scores, through=(*scores.through, condition, weights), zeros=True)


def _of_softmax(function: Function, value: Any, weights: Expr) -> _Scores | None:
    if not is_op(value, "relax.nn.softmax"):
        return None
    rank = len(static_shape(value) or ())
    if int(value.attrs.axis) % rank != rank - 1:
        return None
    mix = head_mix(function, value.args[0])
    scores = _scores(function, value.args[0] if mix is None else mix.scores)
    if scores is None or not 0 < scores.scale < math.inf:
        return None
    if mix is not None:
        scores = replace(scores, mix=mix, through=(*scores.through, *mix.through))
    shape = static_shape(value)
    keys = scores.product.right.view.shape[-1]
    return None if shape is None or shape[-1] != keys else _followed(scores, weights)


def _scores(function: Function, scores: Expr, steps: int = MOST_STEPS) -> _Scores | None:
    """Return ``scores`` as a product, perhaps scaled, with biases, and reshaped; else None."""
    value = sole_definition(function, scores) if steps else None
    if value is None or dtype_of(value) != "float32":
        return None
    if is_op(value, "relax.matmul"):
        factors = _factors(value, function.definitions(), scaled=True)
        return (
            None
            if factors is None
            else _Scores(product=factors, scale=factors.scale, biases=(), through=(scores,))
        )
    if is_op(value, "relax.reshape"):
        return _followed(_scores(function, value.args[0], steps - 1), scores)
    factor = constant_value(value.args[1]) if is_op(value, "relax.multiply") else None
    if factor is not None:
        found = _scores(function, value.args[0], steps - 1) if factor.size == 1 else None
        if found is None or found.biases or static_shape(value) != static_shape(value.args[0]):
            return None
        return _followed(replace(found, scale=found.scale * float(factor.item())), scores)
    if is_op(value, "relax.add"):
        for own, other in (value.args, reversed(value.args)):
            found = _scores(function, own, steps - 1)
            if found is not None:
                return _followed(_biased(function, found, value, other), scores)
    return None


def _biased(function: Function, scores: _Scores, call: Call, bias: Expr) -> _Scores | None:
    shape = static_shape(call)
    assert shape is not None
    rows = math.prod(scores.product.batch) * scores.product.left.view.shape[-2]
    if math.prod(shape) != rows * scores.product.right.view.shape[-1]:
        return None
    found = _regular(bias, shape, function.definitions(), scaled=False)
    return None if found is None else replace(scores, biases=(*scores.biases, found))


def _followed(scores: _Scores | None, var: Var) -> _Scores | None:
    return None if scores is None else replace(scores, through=(*scores.through, var))


def _over(found: Seen, shape: Sequence[int]) -> Seen | None:
    """Return matrices over another batch; None if they would be irregular, or be repeated."""
    same = math.prod(found.view.shape) == math.prod(shape)
    view = found.view.reshaped(shape) if same else None
    return None if view is None or not _has_matrices(view) else replace(found, view=view)


def _written(
    function: Function, var: Var, read: Set[Expr]
) -> tuple[Var, StridedView, tuple[Var, ...]]:
    """Follow the transposes and reshapes of a product that the kernel can apply as it writes.

    `read` has the sources of other products, which must exist. Returns the last variable that it
    can write, the places of the product's elements in it, and the variables up to it.
    """
    shape = static_shape(var)
    assert shape is not None
    result, output, chain, count = var, StridedView.of(shape), [var], 1
    last, moved = var, output
    while last not in read:
        reader = sole_reader(function, last)
        if reader is None:
            break
        value = function.definition(reader)
        if is_op(value, "relax.permute_dims"):
            moved = moved.permuted(permutation_of(value))
        elif is_op(value, "relax.reshape"):
            reshaped = moved.reshaped(static_shape(value) or ())
            if reshaped is None:
                break
            moved = reshaped
        else:
            break
        last = reader
        chain.append(reader)
        inverse = moved.inverse(shape)
        if inverse is not None and _has_matrices(inverse) and _in_rows(inverse):
            result, output, count = reader, inverse, len(chain)
    return result, output, tuple(chain[:count])
