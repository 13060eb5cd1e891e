"""``neocpu explain``: show the decisions that were made when an artifact was compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import UsageError
from neocpu.plan.text.artifact_text import packing_fields
from neocpu.plan.text.plan_comparison import explain_change
from neocpu.plan.text.plan_page import write_page
from neocpu.plan.text.plan_screen import show_plan, showing_plan_of, with_launches
from neocpu.plan.text.plan_text import call_fields

if TYPE_CHECKING:
    from neocpu.frontend.shapes.input_shapes import Given

EPILOG = """\b
Examples:
  neocpu explain resnet50.so --sort
  neocpu explain resnet50.so --html resnet50.html --profile
  neocpu explain resnet50.so --html resnet50.html --measured profile.json
  neocpu explain resnet50.so --html resnet50.html --trace timeline.json
  neocpu explain untuned.so tuned.so --html change.html
  neocpu explain resnet50-fat.so --variant avx512
  neocpu explain resnet50.so --json | jq '.search.gap'"""


@click.command(epilog=EPILOG)
@click.argument("artifact", type=options.PATH)
@click.argument("other", type=options.PATH, metavar="[OTHER.so]", required=False)
@click.option(
    "--variant",
    metavar="NAME",
    help="The part of a fat file to explain; by default the one this host would load, or the first "
    "if it can run none.",
)
@click.option("--sort", is_flag=True, help="Show the slowest operators first.")
@click.option("--transforms", is_flag=True, help="List the layout transforms too.")
@click.option(
    "--html",
    type=options.PATH,
    metavar="FILE",
    help="Write a page for a browser instead: the network, the time, the memory and the search. It "
    "is one file that loads nothing else.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="With --html or OTHER.so: run the artifacts here, and show the measured time of each "
    "operator.",
)
@click.option(
    "--measured",
    type=options.PATH,
    metavar="FILE.json",
    help="With --html: show the times that neocpu bench profile ARTIFACT --json measured, here or "
    "elsewhere.",
)
@click.option(
    "--trace",
    type=options.PATH,
    metavar="FILE.json",
    help="With --html: show the time line of a run, thread by thread, that neocpu run --trace "
    "wrote.",
)
@options.one_shape()
@options.common
def command(
    terminal: Terminal,
    artifact: Path,
    other: Path | None,
    variant: str | None,
    shapes: Mapping[str, Given],
    sort: bool,
    transforms: bool,
    html: Path | None,
    profile: bool,
    measured: Path | None,
    trace: Path | None,
) -> None:
    """Show the plan of ARTIFACT: each operator's scheme, layout and time, and the search.

    With OTHER.so, compiled from the same model, show which decisions differ, operator by operator,
    and how much time they save. Plans are read from the files. Only --profile runs them, so without
    it they may be for another CPU. Where extents of inputs may vary, all of it is for the typical
    shapes; --shape gives the memory for others.
    """
    from neocpu.foundation.tensor_spec import shapes_text
    from neocpu.runtime.artifact import read_header

    if other is not None:
        if transforms or trace is not None or measured is not None:
            raise UsageError(
                "--transforms, --measured and --trace show one artifact: drop OTHER.so, or them"
            )
        files = (artifact, other)
        explain_change(terminal, files, variant, shapes, html, profile=profile, sort=sort)
        return
    if profile and html is None:
        raise UsageError("the times of --profile are shown on a page: add --html FILE")
    for option, file in (("--measured", measured), ("--trace", trace)):
        if file is not None and html is None:
            raise UsageError(f"the file of {option} is shown on a page: add --html FILE")
    if profile and measured is not None:
        raise UsageError("--profile and --measured both give times: drop one of them")
    every = read_header(artifact, variant)
    header = every.of(shapes)
    others = [("of the shapes", every.set_text)] if every.others else []
    if every.sized is not None:
        others += [
            ("any shape of", "; ".join(every.input_texts)),
            ("planned for", shapes_text(every.inputs)),
        ]
    others += packing_fields(every.prologue)
    with showing_plan_of(artifact):
        others += call_fields(header.plan)
        shown = with_launches(header).to_json()
        if html is not None:
            shown |= write_page(
                terminal,
                artifact,
                header,
                others,
                html,
                variant=variant,
                profile=profile,
                measured=measured,
                trace=trace,
            )
        if html is None or terminal.json:
            terminal.result(
                shown, lambda: show_plan(header, others, sort=sort, transforms=transforms)
            )
