"""``neocpu bench instructions``: what convolutions execute on an ARM CPU, counted without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, of_models, peers
from neocpu.cli.bench_views.view import report
from neocpu.foundation.console.terminal import Terminal

if TYPE_CHECKING:
    from neocpu.bench.instructions.instruction_report import InstructionReport
    from neocpu.bench.results.document import Run

EPILOG = """\b
Examples:
  neocpu bench instructions resnet18 mobilenet_v2 --vs ncnn -o arm.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models
@peers
@click.option(
    "--sysroot",
    type=options.PATH,
    default=Path("build/arm/sysroot"),
    show_default=True,
    metavar="DIR",
    help="An AArch64 system with Python and the engines, as make build/arm/.ready makes one.",
)
def command(terminal: Terminal, asked: Asked, peers: tuple[str, ...] | None, sysroot: Path) -> int:
    """Count what convolutions execute on a Cortex-A72, emulated by QEMU, and model their loops.

    On one thread. --vs names ncnn, onnxruntime or both.
    """
    from neocpu.bench.instructions.arm_system import CPU
    from neocpu.bench.instructions.convolution_counter import (
        CountRequest,
        check_request,
        count_models,
    )
    from neocpu.bench.instructions.instruction_count import tool_versions
    from neocpu.bench.instructions.instruction_tables import METHOD, render, tables

    request = CountRequest(peers or (), sysroot, asked.known.databases, asked.known.shapes)
    check_request(request)

    def amend(run: Run) -> Run:
        machine = replace(run.machine, versions={**run.machine.versions, **tool_versions()})
        return replace(run, peers=request.peers, machine=machine, threads=(1,))

    return report(
        terminal,
        asked,
        lambda on_progress: count_models(asked.models, request, on_progress),
        lambda found: tables(found.reports, found.failures),
        lambda title, found, run: render(title, found.reports, found.failures, run),
        title=f"Convolutions on a {CPU}: {asked.page.subject}",
        method=lambda run: METHOD,
        amend=amend,
        wrong=_raise_own,
    )


def _raise_own(reports: Sequence[InstructionReport]) -> str:
    """Raise why one of our own kernels failed: the others' failures stand in the tables."""
    from neocpu.bench.engines.contenders import OWN

    failures = (f for one in reports for kernel in one.kernels for f in kernel.failures)
    for failure in failures:
        if failure.name == OWN:
            raise failure.error
    return ""
