"""Small plans for tests, and parts of plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from neocpu.plan.kernels import LayoutTransform, PlannedKernel
from neocpu.plan.operators import PlannedOperator, PlannedScheme
from neocpu.plan.outcome import PlanSearch, Promise, Verification, WeightSizes
from neocpu.plan.plan import Plan


def small_plan(**changes: Any) -> Plan:
    """Return a plan without operators, with some of its fields given."""
    plan = Plan(
        target="llvm -mcpu=znver5",
        threads=2,
        opt="global",
        accuracy=Promise(name="default", bound=1e-4),
        admission="with Winograd tiles of any size",
        predicted_us=1000.0,
        search=PlanSearch(
            solver="exact",
            cost_us=900.0,
            lower_bound_us=900.0,
            gap=0.0,
            verdict="proven optimal",
            seconds=0.5,
            variables=3,
        ),
        ops=(),
        transforms=(),
        weights=WeightSizes(given_bytes=20, packed_bytes=30, limit_bytes=None),
        activation_bytes=64,
    )
    return replace(plan, **changes)


def small_operator(name: str = "conv2d_0", template: str = "", **changes: Any) -> PlannedOperator:
    """Return an operator of a template, or without a scheme."""
    operator = PlannedOperator(
        name=name,
        kind=name.rpartition("_")[0],
        workload="1x8x8x8",
        flops=0,
        scheme=PlannedScheme(template=template, parameters={}) if template else None,
        in_layout="NCHW",
        out_layout="NCHW",
        cost_us=10.0,
        cost_source="measured",
        kernel=name,
    )
    return replace(operator, **changes)


def small_kernel(name: str, kind: str = "conv2d", **changes: Any) -> PlannedKernel:
    """Return a kernel that is called once and takes a tenth of a run of `small_plan`."""
    kernel = PlannedKernel(
        name=name, kind=kind, calls=1, cost_us=100.0, cost_source="estimated", share=0.1
    )
    return replace(kernel, **changes)


def small_transform(**changes: Any) -> LayoutTransform:
    """Return a layout transform."""
    transform = LayoutTransform(
        source="NCHW",
        destination="NCHW8c",
        shape=(1, 8, 8, 8),
        kernel="transform_NCHW_to_NCHW8c",
        cost_us=1.0,
    )
    return replace(transform, **changes)


def verified(norm_error: float | None, **changes: Any) -> Verification:
    """Return a comparison of outputs that kept the promise."""
    found = Verification(kept=True, max_abs_error=1e-5, max_rel_error=2e-6, norm_error=norm_error)
    return replace(found, **changes)
