"""``neocpu bench instructions``: what convolutions execute on an ARM CPU, counted without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import Asked, RecordingCommand, of_models, peers
from neocpu.cli.bench_views.page import collect, fail, present, run_of
from neocpu.cli.terminal import Terminal

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
    from neocpu.bench.engines.contenders import OWN
    from neocpu.bench.instructions.arm_system import CPU
    from neocpu.bench.instructions.convolution_counter import (
        CountRequest,
        check_request,
        count_models,
    )
    from neocpu.bench.instructions.instruction_count import tool_versions
    from neocpu.bench.instructions.instruction_tables import render, tables

    request = CountRequest(peers or (), sysroot, asked.known.databases, asked.known.shapes)
    check_request(request)
    found = collect(
        terminal, asked.models, lambda report: count_models(asked.models, request, report)
    )
    run = run_of(asked.page, replace(asked.known, threads=1))
    versions = {**run.machine.versions, **tool_versions()}
    run = replace(run, peers=request.peers, machine=replace(run.machine, versions=versions))
    title = f"Convolutions on a {CPU}: {asked.page.subject}"
    present(
        terminal,
        found,
        run,
        asked.page,
        tables(found.reports, found.failures),
        lambda _: render(title, found.reports, found.failures, run),
    )
    if found.failures:
        return fail(terminal, found)
    for kernel in (kernel for report in found.reports for kernel in report.kernels):
        for failure in kernel.failures:
            if failure.name == OWN:
                raise failure.error
    return 0
