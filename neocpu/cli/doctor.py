"""``neocpu doctor``: is this machine fit to compile and run models?"""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.lazy_group import installed
from neocpu.cli.terminal import Terminal, echo

if TYPE_CHECKING:
    from neocpu.cli.checks.doctor_findings import Finding

MARKS = {"ok": "✓", "warning": "!", "failed": "✗"}

EPILOG = """\b
Examples:
  neocpu doctor
  neocpu doctor --json | jq .fit
  neocpu doctor --selftest

\b
Environment:
  NEOCPU_GUARD=1  runs every kernel of every command twice, its tensors ending and
                  then beginning at inaccessible pages: one that steps out of them
                  dies of SIGSEGV, and is named. For tests: it is several times slower."""


@click.command(epilog=EPILOG)
@click.option(
    "--selftest",
    is_flag=True,
    help="Also compile small networks of every kind of kernel, and run them under NEOCPU_GUARD=1.",
)
@options.common
def command(terminal: Terminal, selftest: bool) -> int:
    """Check versions, libraries, compiler, CPU, threads and databases, and compile a small model.

    Where neocpu-runtime is installed, check what running a model needs.

    Exits with 0 if neocpu works here, else with 1. Nothing is changed.
    """
    from neocpu.cli.checks.doctor_findings import examine

    # By name, for neocpu-runtime has the second one alone.
    module = "health" if installed("neocpu.cli", "compile") else "runtime_health"
    health = importlib.import_module(f"neocpu.cli.checks.{module}")
    checks = health.CHECKS + (health.SELF_TESTS if selftest else ())
    findings = []
    for finding in examine(checks):
        findings.append(finding)
        if not terminal.json:
            _show(finding)
    fit = all(finding.status != "failed" for finding in findings)
    document = {"fit": fit, "checks": [asdict(finding) for finding in findings]}
    terminal.result(document, lambda: echo("fit" if fit else "not fit: see the lines with ✗"))
    return 0 if fit else 1


def _show(finding: Finding) -> None:
    echo(f"{MARKS[finding.status]} {finding.name}: {finding.detail}")
    if finding.fix and finding.status != "ok":
        echo(f"    {finding.fix}")
    sys.stdout.flush()
