"""``neocpu bench --instructions``: what convolutions execute on an ARM CPU, counted without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from neocpu.cli.bench_page import Known, Page, collect, fail, present, run_of
from neocpu.cli.terminal import Terminal


def compare(
    terminal: Terminal,
    models: Sequence[str],
    known: Known,
    page: Page,
    *,
    peers: tuple[str, ...] | None,
    sysroot: Path,
) -> int:
    """Count, print and write; return the exit code.

    Parameters
    ----------
    peers : tuple of str or None
        Engines besides neocpu.
    sysroot : Path
        An AArch64 system with Python and the engines.
    """
    from neocpu.bench.arm_system import CPU
    from neocpu.bench.convolution_counter import CountRequest, check_request, count_models
    from neocpu.bench.instruction_count import tool_versions
    from neocpu.bench.instruction_tables import render, tables
    from neocpu.bench.report import OWN

    request = CountRequest(peers or (), sysroot, known.databases, known.shapes)
    check_request(request)
    found = collect(terminal, models, lambda report: count_models(models, request, report))
    run = run_of(page, replace(known, threads=1))
    versions = {**run.machine.versions, **tool_versions()}
    run = replace(run, peers=request.peers, machine=replace(run.machine, versions=versions))
    title = f"Convolutions on a {CPU}: {page.subject}"
    present(
        terminal,
        found,
        run,
        page,
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
