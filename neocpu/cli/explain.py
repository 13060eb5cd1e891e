"""``neocpu explain``: what was decided when an artifact was compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from neocpu.cli import options
from neocpu.cli.plans.plan_text import (
    accuracy_text,
    calibration_fields,
    cost_sources,
    error_text,
    loop_fields,
    missed_text,
    precision_text,
    rounding_fields,
    scheme_text,
    sources_text,
    weights_text,
)
from neocpu.cli.plans.rule_options import rule_fields
from neocpu.cli.processing.processing_options import processing_fields
from neocpu.cli.terminal import Terminal, echo, print_fields, print_table
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.units import duration, plural, size
from neocpu.runtime.header import ArtifactHeader

EPILOG = """\b
Examples:
  neocpu explain resnet50.so
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
@options.common
def command(terminal: Terminal, artifact: Path, variant: str | None) -> None:
    """Show the plan of ARTIFACT: schemes and layouts per operator, transforms, search.

    The plan is read from the file; nothing in it is run, so it may be for another CPU.
    """
    from neocpu.runtime.artifact import read_header

    header = read_header(artifact, variant)
    try:
        terminal.result(header.plan, lambda: _show(header))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{artifact} has a plan that cannot be shown ({error!r}); compile the model again"
        ) from error


def _show(header: ArtifactHeader) -> None:
    plan = header.plan
    search, transforms = plan["search"], plan["transforms"]
    fields = [
        ("target", plan["target"]),
        ("threads", str(plan["threads"])),
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
            f"searched; no plan is below {duration(search['lower_bound_us'] / 1e6)}",
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
    _show_ops(plan)
    echo()
    if transforms:
        _show_transforms(plan)
    else:
        echo("No layout transforms.")


def _show_ops(plan: Mapping[str, Any]) -> None:
    # An older neocpu had no other precision, and says nothing of it.
    kinds = [op.get("precision", "fp32") for op in plan["ops"]]
    mixed = set(kinds) != {"fp32"}
    first = ("op", "computes in") if mixed else ("op",)
    # Of a model compiled with calibration data: what each layer saves, and does to the outputs.
    layers = {each["layer"]: each for each in (plan.get("calibration") or {}).get("layers", ())}
    cost = ("saves µs", "noise") if layers else ()
    print_table(
        (*first, "workload", "scheme", "in", "out", "µs", *cost, "source"),
        [
            (
                op["name"],
                *([kind] if mixed else []),
                op["workload"],
                scheme_text(op["scheme"]),
                op["in_layout"],
                op["out_layout"],
                f"{op['cost_us']:.1f}",
                *(_saved(layers.get(op.get("layer"))) if layers else ()),
                op["cost_source"],
            )
            for op, kind in zip(plan["ops"], kinds, strict=True)
        ],
        right=("µs", *cost),
    )


def _saved(layer: Mapping[str, Any] | None) -> tuple[str, str]:
    return ("", "") if layer is None else (f"{layer['saved_us']:.1f}", f"{layer['noise']:.1e}")


def _show_transforms(plan: Mapping[str, Any]) -> None:
    # Equal ones in one line: a network repeats its blocks.
    counted = Counter(
        (
            t["from"],
            t["to"],
            "x".join(map(str, t["shape"])),
            t["cost_us"],
            t.get("cost_source", "estimated"),  # an older neocpu measured none
        )
        for t in plan["transforms"]
    )
    print_table(
        ("transform", "to", "shape", "times", "µs", "source"),
        [
            (before, after, shape, str(times), f"{cost:.1f}", source)
            for (before, after, shape, cost, source), times in counted.items()
        ],
        right=("times", "µs"),
    )
