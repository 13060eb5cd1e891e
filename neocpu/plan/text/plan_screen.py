"""The plan of an artifact as ``neocpu explain`` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from neocpu.foundation.console.terminal import echo, print_fields
from neocpu.foundation.errors import ArtifactError, NeoCPUError
from neocpu.foundation.units import duration, plural, size
from neocpu.plan.operators import DENSE
from neocpu.plan.text.artifact_text import precision_text
from neocpu.plan.text.lack_table import show_lacks
from neocpu.plan.text.launch_table import show_launches
from neocpu.plan.text.plan_text import (
    accuracy_text,
    calibration_fields,
    cost_sources,
    error_text,
    goal_fields,
    level_fields,
    loop_fields,
    missed_text,
    processing_fields,
    proof_fields,
    rounding_fields,
    rule_fields,
    skippable_text,
    sources_text,
    split_fields,
    weights_text,
)
from neocpu.plan.text.share_table import show_shares, show_transforms

if TYPE_CHECKING:
    from neocpu.runtime.header import ArtifactHeader


@contextmanager
def showing_plan_of(artifact: Path) -> Iterator[None]:
    """Turn all errors of showing a plan into errors of its artifact: anybody may have written it.

    Raises ArtifactError: the plan cannot be shown.
    """
    try:
        yield
    except NeoCPUError:  # some are a ValueError or a TypeError too
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{artifact} has a plan that cannot be shown ({error!r}); compile the model again"
        ) from error


def show_plan(
    header: ArtifactHeader, others: Sequence[tuple[str, str]], *, sort: bool, transforms: bool
) -> None:
    """Print the decisions, and the time of each part of a run.

    others: fields about the set of shapes, if the file has one.
    sort: whether the parts that take longest come first.
    transforms: whether the layout transforms are listed too.
    """
    echo(header.name)
    print_fields(plan_fields(header, others))
    echo()
    show_shares(header.plan, sort=sort)
    show_launches(header)
    show_lacks(header.plan)
    if transforms:
        echo()
        show_transforms(header.plan)


def plan_fields(header: ArtifactHeader, others: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the decisions about the whole model as names and values."""
    plan = header.plan
    search = plan.search
    dense = sum(op.kind == DENSE and op.numerics is not None for op in plan.ops)
    fields = [
        *([("shape", header.set_text), *others] if others else []),
        ("target", plan.target),
        *goal_fields(plan),
        ("opt", plan.opt),
        ("computes in", precision_text(plan.precision, plan.computes_in, dense)),
        *split_fields(plan),
        *proof_fields(plan),
        *rounding_fields(plan),
        *processing_fields(plan),
        *calibration_fields(plan),
        *rule_fields(plan),
        *loop_fields(header.repeats),
        ("accuracy", accuracy_text(plan.accuracy)),
        (
            "search",
            f"{search.solver} over {plural(search.variables, 'variable')} "
            f"in {duration(search.seconds)}, {search.verdict}",
        ),
        (
            "predicted",
            f"{duration(plan.predicted_us / 1e6)}; the search chose "
            f"{duration(search.cost_us / 1e6)} of this, and no plan within the limit on weights "
            f"takes less than {duration(search.lower_bound_us / 1e6)}{skippable_text(plan)}",
        ),
        *level_fields(search),
        ("weights", weights_text(plan.weights)),
        ("activations", f"{size(plan.activation_bytes)} between the kernels"),
    ]
    if sources := cost_sources(plan):
        fields.append(("costs", f"of convolutions: {sources_text(sources)}"))
    fields.append(("largest error", error_text(plan)))
    if missed := missed_text(plan):
        fields.append(("before", missed))
    return fields
