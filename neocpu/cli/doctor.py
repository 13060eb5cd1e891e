"""``neocpu doctor``: check that this machine can compile and run models."""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.parsing.groups import installed
from neocpu.foundation.console.terminal import Terminal, echo, print_fields

if TYPE_CHECKING:
    from neocpu.cli.checks.runtime_health import Finding

FENCE = "```"  # line around a report, which keeps its line breaks in Markdown
MARKS = {"ok": "✓", "warning": "!", "failed": "✗"}

EPILOG = """\b
Examples:
  neocpu doctor
  neocpu doctor --json | jq .fit
  neocpu doctor --selftest
  neocpu doctor --report > report.txt

\b
Environment:
  NEOCPU_GUARD=1  runs every kernel of every command twice, first with tensors that
                  end at inaccessible pages, then with tensors that begin at them. A
                  kernel that leaves its tensors dies of SIGSEGV, and is named. This
                  is for tests: it is several times slower."""


@click.command(epilog=EPILOG)
@click.option(
    "--selftest",
    is_flag=True,
    help="Also compile small networks of every kind of kernel, and run them under NEOCPU_GUARD=1.",
)
@click.option(
    "--report",
    is_flag=True,
    help="Print a text to paste into a bug report: also versions, CPU, limits, memory and "
    "compilers, without names, folders and values of variables.",
)
@options.common
def command(terminal: Terminal, selftest: bool, report: bool) -> int:
    """Check versions, libraries, compiler, CPU, threads and databases, and compile a small model.

    Where neocpu-runtime is installed, check what running a model needs.

    Exits with 0 if neocpu works here, else with 1. Nothing is changed.
    """
    from neocpu.cli.checks.runtime_health import examine

    machine = _machine(terminal) if report else {}
    # Imported by name, because neocpu-runtime has only the second one.
    module = "health" if installed("neocpu.cli", "compile") else "runtime_health"
    health = importlib.import_module(f"neocpu.cli.checks.{module}")
    checks = health.CHECKS + (health.SELF_TESTS if selftest else ())
    findings = []
    for found in examine(checks):
        finding = _shareable(found) if report else found
        findings.append(finding)
        if not terminal.json:
            _show(finding)
    fit = all(finding.status != "failed" for finding in findings)
    document = {"fit": fit, "checks": [asdict(finding) for finding in findings], **machine}
    verdict = f"neocpu {'works here' if fit else 'does not work here: see the lines with ✗'}"
    terminal.result(document, lambda: echo(verdict, *([FENCE] if report else [])))
    return 0 if fit else 1


def _machine(terminal: Terminal) -> dict[str, dict[str, str]]:
    from neocpu.cli.checks.machine_facts import facts, without_secrets

    found = {name: without_secrets(text) for name, text in facts().items()}
    if not terminal.json:
        echo(FENCE)
        print_fields([*found.items()])
    return {"machine": found}


def _shareable(finding: Finding) -> Finding:
    from neocpu.cli.checks.machine_facts import without_values

    return replace(finding, detail=without_values(finding.detail), fix=without_values(finding.fix))


def _show(finding: Finding) -> None:
    echo(f"{MARKS[finding.status]} {finding.name}: {finding.detail}")
    if finding.fix and finding.status != "ok":
        echo(f"    {finding.fix}")
    sys.stdout.flush()
