"""``neocpu explain``: what was decided when an artifact was compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.plans import shape_options
from neocpu.cli.plans.plan_text import (
    accuracy_text,
    calibration_fields,
    cost_sources,
    error_text,
    goal_fields,
    loop_fields,
    missed_text,
    precision_text,
    rounding_fields,
    sources_text,
    weights_text,
)
from neocpu.cli.plans.rule_options import rule_fields
from neocpu.cli.plans.share_table import show_shares, show_transforms
from neocpu.cli.processing.processing_options import processing_fields
from neocpu.cli.terminal import Terminal, echo, print_fields
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.units import duration, plural, size
from neocpu.tensor_spec import shapes_text

if TYPE_CHECKING:
    from neocpu.input_shapes import Given
    from neocpu.runtime.header import ArtifactHeader

EPILOG = """\b
Examples:
  neocpu explain resnet50.so --sort
  neocpu explain resnet50-fat.so --variant avx512
  neocpu explain resnet50.so --json | jq '.search.gap'"""


@click.command(epilog=EPILOG)
@click.argument("artifact", type=options.PATH)
@click.option(
    "--variant",
    metavar="NAME",
    help="Which part of a file for several CPUs; by default the one this host would load, or the "
    "first if it can run none.",
)
@click.option("--sort", is_flag=True, help="Show first what takes longest.")
@click.option("--transforms", is_flag=True, help="List the layout transforms too.")
@shape_options.one_shape
@options.common
def command(
    terminal: Terminal,
    artifact: Path,
    variant: str | None,
    shapes: Mapping[str, Given],
    sort: bool,
    transforms: bool,
) -> None:
    """Show the plan of ARTIFACT: schemes and layouts per operator, what each takes, the search.

    The plan is read from the file; nothing in it is run, so it may be for another CPU.
    """
    from neocpu.runtime.artifact import read_header

    every = read_header(artifact, variant)
    header = every.of(shapes)
    others = [("of the shapes", every.set_text)] if every.others else []
    try:
        terminal.result(
            header.plan, lambda: _show(header, others, sort=sort, transforms=transforms)
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{artifact} has a plan that cannot be shown ({error!r}); compile the model again"
        ) from error


def _show(
    header: ArtifactHeader, others: Sequence[tuple[str, str]], *, sort: bool, transforms: bool
) -> None:
    plan = header.plan
    search = plan["search"]
    fields = [
        *([("shape", shapes_text(header.inputs)), *others] if others else []),
        ("target", plan["target"]),
        *goal_fields(plan),
        ("opt", plan["opt"]),
        ("computes in", precision_text(plan)),
        *rounding_fields(plan),
        *processing_fields(plan),
        *calibration_fields(plan),
        *rule_fields(plan),
        *loop_fields(header.repeats),
        ("accuracy", accuracy_text(plan["accuracy"])),
        (
            "search",
            f"{search['solver']} over {plural(search['variables'], 'variable')} "
            f"in {duration(search['seconds'])}, {search['verdict']}",
        ),
        (
            "predicted",
            f"{duration(plan['predicted_us'] / 1e6)}, of it {duration(search['cost_us'] / 1e6)} "
            "searched; no plan that is worth its weights is below "
            f"{duration(search['lower_bound_us'] / 1e6)}",
        ),
        ("weights", weights_text(plan["weights"])),
        ("activations", f"{size(plan['activation_bytes'])} between the kernels"),
    ]
    if sources := cost_sources(plan):
        fields.append(("costs", f"of convolutions: {sources_text(sources)}"))
    # Absent is not unchecked: the plan may have been written before the check.
    if "verification" in plan:
        fields.append(("largest error", error_text(plan)))
    if missed := missed_text(plan):
        fields.append(("before", missed))
    echo(header.name)
    print_fields(fields)
    echo()
    show_shares(plan, sort=sort)
    if transforms:
        echo()
        show_transforms(plan)
