"""Plans that pay for the bytes of their packed weights: a little always, more under a limit.

Winograd's transform makes up to seven times as many weights as the model has, and a scheme that is
hardly faster than another may have twice as many bytes. The price of a byte decides between them.

The fastest plan within a limit is found by a multiplier on bytes: the plans that minimise ``seconds
+ p * bytes`` for all prices ``p`` are the corners of the lower convex hull of (bytes, seconds). The
answer is the fastest corner within the limit. The line from it to the next corner bounds the
seconds of any plan within the limit (Everett, Operations Research 1963). Plans above the hull are
not found: that is the duality gap, which the answer states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import size
from neocpu.planning.convolution_choices import convolution_choices
from neocpu.planning.costs import CostModel
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.solver.plan import Plan

PROHIBITIVE = 1e-3  # seconds per byte at which seconds only decide between plans of equal bytes
# The price of a byte, as a share of the time to read it from memory. The share is below one because
# some weights of a network are still in L3, while kernels that are measured alone read them from
# memory. Compared with half this share, plans of VGG-16, DenseNet-121, SSD and MobileNet-v1 have 6
# to 18 % fewer bytes and are estimated 1 to 3 % slower; measured, VGG-16 was 1 % faster, no other.
KEPT = 0.6
# The bytes of an integer network, as a share of those of the same network in float32. Whoever asks
# for 8 bits asks for fewer bytes, too, and Winograd's transform makes 72 of every nine bytes.
MOST_OF_FLOAT32 = 0.45
ROUNDING = 1e-9  # a corner below the line through two others by less than this share is on it


@dataclass(frozen=True, slots=True)
class _Corner:
    plan: LayoutPlan
    bytes: int  # of its packed weights
    seconds: float  # without the price of these bytes


def plan_sparingly(price: float, solve: Callable[[float], LayoutPlan]) -> LayoutPlan:
    """Return the best plan at a ``price`` of bytes, without it; `solve` is as in `plan_within`."""
    return in_seconds(solve(price), price)


def price_kept(target: CpuTarget) -> float:
    """Return the seconds that each byte of weights has to save."""
    return KEPT / target.bandwidths[-1]


def in_seconds(plan: LayoutPlan, price: float) -> LayoutPlan:
    """Return a plan, its cost and lower bound less ``price`` seconds per byte of its weights."""
    paid = price * plan.weight_bytes
    found = plan.search
    cost, bound = found.cost - paid, found.lower_bound - paid
    return replace(plan, search=replace(found, cost=cost, lower_bound=bound))


def most_of_integers(plan: LayoutPlan, costs: CostModel, fixed: int) -> int | None:
    """Return the limit in bytes on the weights of an integer network; None for other networks.

    The limit is `MOST_OF_FLOAT32` of all weights' bytes in float32, or, if more, that share of the
    integer convolutions' bytes plus all other bytes. `fixed` bytes are in every plan.
    """
    priced = replace(costs, byte_price=price_kept(costs.target))
    in_float, beside = 0, plan.weight_bytes
    found: dict[Conv2dWorkload, int] = {}
    for op, choice in zip(plan.network.ops, plan.choices, strict=True):
        if not isinstance(op, ConvOp) or op.numerics(choice).weights != "int8":
            continue
        if op.workload not in found:
            best, *_ = convolution_choices(op.workload, priced, fold=True)
            found[op.workload] = best.weight_bytes
        in_float += found[op.workload]
        beside -= choice.weight_bytes
    if not found:
        return None
    whole = in_float + beside + fixed
    for layer in plan.network.dense:
        packed = layer.packed_bytes(costs.target, costs.threads)
        whole += layer.weights.size * bytes_of("float32") - packed
    return int(max(MOST_OF_FLOAT32 * whole, fixed + beside + MOST_OF_FLOAT32 * in_float))


def plan_within(limit: int, fixed: int, solve: Callable[[float], LayoutPlan]) -> LayoutPlan:
    """Return the fastest plan on the hull that packs its weights into ``limit`` bytes. No plan
    changes ``fixed`` of these. `solve` returns the best plan at a price in seconds per byte, which
    its cost contains. Raises UsageError if the weights of every plan are larger.
    """
    spent = 0.0

    def corner(price: float) -> _Corner:
        nonlocal spent
        plan = solve(price)
        spent += plan.search.seconds
        return _Corner(plan, plan.weight_bytes, plan.search.cost - price * plan.weight_bytes)

    large = corner(0.0)
    if fixed + large.bytes <= limit:
        return large.plan
    small = corner(PROHIBITIVE)
    if fixed + small.bytes > limit:
        least = fixed + small.bytes
        raise UsageError(
            f"--max-weights {size(limit)} is too small: the packed weights of this model take at "
            f"least {size(least)} ({least} bytes)"
        )
    while True:
        slower = max(0.0, small.seconds - large.seconds)  # a heuristic may find less than 0
        price = slower / (large.bytes - small.bytes)
        found = corner(price)
        line = large.seconds + price * large.bytes
        if found.plan.search.cost >= line * (1 - ROUNDING):
            break
        if fixed + found.bytes <= limit:
            small = found
        else:
            large = found
    bound = found.plan.search.lower_bound - price * (limit - fixed)
    return replace(small.plan, search=_within(small, min(bound, small.seconds), spent))


def _within(corner: _Corner, bound: float, spent: float) -> Plan:
    gap = (corner.seconds - bound) / corner.seconds
    return replace(
        corner.plan.search,
        cost=corner.seconds,
        lower_bound=bound,
        gap=gap if gap > ROUNDING else 0.0,
        seconds=spent,
        relaxed=True,
    )
