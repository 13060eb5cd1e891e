"""The plan as people and tools read it: the object ``neocpu explain --json`` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neocpu.passes.apply_plan import RewrittenModule
from neocpu.planning.costs import Choice
from neocpu.planning.network import ConvOp, DenseOp, LayoutOp, PoolOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.schedules.operators.dense import estimate
from neocpu.schedules.vocabulary.accuracy import DEFAULT, Accuracy, Admission
from neocpu.schedules.vocabulary.target import CpuTarget

if TYPE_CHECKING:
    from neocpu.verification import Verdict

MICRO = 1e6


def explain(
    plan: LayoutPlan,
    rewritten: RewrittenModule,
    target: CpuTarget,
    threads: int,
    accuracy: Accuracy = DEFAULT,
) -> dict[str, Any]:
    """Return what was decided and why; every cost is in microseconds. See `with_outcome`.

    Parameters
    ----------
    rewritten : RewrittenModule
        What became of the network under ``plan``.
    accuracy : Accuracy
        What the schemes were chosen for.
    """
    search = plan.search
    dense = [_dense(op, estimate(op.workload, target, threads)) for op in plan.network.dense]
    ops = [_op(op, choice) for op, choice in zip(plan.network.ops, plan.choices, strict=True)]
    return {
        "target": str(target),
        "threads": threads,
        "opt": str(plan.opt),
        "accuracy": {"name": accuracy.name, "bound": accuracy.bound},
        "predicted_us": search.cost * MICRO + sum(op["cost_us"] for op in dense),
        "search": {
            "solver": search.solver,
            "cost_us": search.cost * MICRO,
            "lower_bound_us": search.lower_bound * MICRO,
            "gap": search.gap,
            "verdict": search.verdict,
            "seconds": search.seconds,
            "variables": search.variables,
        },
        "ops": [{**op, "kernel": rewritten.kernels.get(op["name"])} for op in (*ops, *dense)],
        "transforms": [
            {
                "from": str(t.source),
                "to": str(t.destination),
                "shape": list(t.shape),
                "kernel": t.kernel,
                "cost_us": t.cost.seconds * MICRO,
                "cost_source": t.cost.source,
            }
            for t in rewritten.transforms
        ],
    }


def with_outcome(
    report: Mapping[str, Any],
    seconds: Mapping[str, float],
    verdict: Verdict | None = None,
    unchecked: str | None = None,
    missed: Sequence[tuple[Admission, Verdict]] = (),
) -> dict[str, Any]:
    """Return ``report`` with how long each phase took, in order, and how far off the result is.

    Parameters
    ----------
    unchecked : str, optional
        Why nothing was checked.
    missed : sequence of pair of Admission and Verdict
        The plans that did not keep the promise, in the order in which they were tried.
    """
    return {
        **report,
        "passes": [{"name": name, "seconds": value} for name, value in seconds.items()],
        "verification": None if verdict is None else _outcome(verdict),
        "unchecked": unchecked,
        "missed": [{"admission": each.name, **_outcome(found)} for each, found in missed],
    }


def _outcome(verdict: Verdict) -> dict[str, Any]:
    found = verdict.found
    return {
        "kept": verdict.kept,
        "max_abs_error": _number(found.max_abs_error),
        "max_rel_error": _number(found.max_rel_error),
        "norm_error": _number(found.norm_error),
        "float32_error": _number(verdict.float32_error),
        "moved_rows": found.moved_rows,
        "unmatched_rows": found.unmatched_rows,
    }


def _number(value: float | None) -> float | None:
    """Return a number that JSON has."""
    return value if value is not None and math.isfinite(value) else None


def _op(op: LayoutOp, choice: Choice) -> dict[str, Any]:
    described = (
        str(op.workload) if isinstance(op, ConvOp | PoolOp) else "x".join(map(str, op.shape))
    )
    return {
        "name": op.name,
        "kind": op.name.rpartition("_")[0],
        "workload": described,
        "flops": op.workload.flops if isinstance(op, ConvOp) else 0,
        "scheme": choice.scheme.to_json() if choice.scheme is not None else None,
        "weight_bytes": choice.weight_bytes,
        "in_layout": str(choice.in_layout),
        "out_layout": str(choice.out_layout),
        "cost_us": choice.seconds * MICRO,
        "cost_source": choice.source,
    }


def _dense(op: DenseOp, seconds: float) -> dict[str, Any]:
    """Describe a dense layer: it has one schedule, so the search has nothing to choose."""
    return {
        "name": op.name,
        "kind": "dense",
        "workload": str(op.workload),
        "flops": op.workload.flops,
        "scheme": None,
        "in_layout": "NC",
        "out_layout": "NC",
        "cost_us": seconds * MICRO,
        "cost_source": "estimated",
    }
