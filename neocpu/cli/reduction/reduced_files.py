"""The files that ``neocpu reduce`` writes, and its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neocpu.cli.array_files.arrays import write_archive
from neocpu.foundation.console.terminal import Terminal, echo, print_fields
from neocpu.foundation.files import replacing
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import duration, plural

if TYPE_CHECKING:
    from neocpu.verification.reduction.checks import Check
    from neocpu.verification.reduction.reduce_model import Reduction
    from neocpu.verification.reduction.whole_graph import Case

SHOWN = 8
"""Number of operators that are listed."""


@dataclass(frozen=True, slots=True)
class ReducedFiles:
    """The files of a part of a model and of its inputs."""

    model: Path

    @property
    def inputs(self) -> Path:
        """The archive beside the model."""
        return self.model.with_suffix(".npz")

    def writer(self, terminal: Terminal) -> Callable[[Case], None]:
        """Return a function that writes a part, and lets the terminal report it after Ctrl-C."""

        def write(case: Case) -> None:
            data = case.model.SerializeToString()
            with replacing(self.model, len(data)) as file:
                file.write(data)
            write_archive(self.inputs, case.inputs)
            nodes = plural(len(case.operators), "node")
            terminal.kept = lambda: f"{self.model} has the smallest part so far, {nodes}"

        return write

    def document(self, found: Reduction, check: Check) -> JsonObject:
        """Return the JSON document of ``--json``."""
        return {
            "model": str(self.model),
            "inputs": str(self.inputs),
            "operators": list(found.case.operators),
            "nodes": found.nodes,
            "failure": found.failure,
            "checks": found.checks,
            "seconds": found.seconds,
            "is_smallest": found.is_smallest,
            "reproduce": check.shown(self.model, self.inputs),
        }

    def show(self, found: Reduction, check: Check, *, quiet: bool) -> None:
        """Print the result for people, or only its first line if ``quiet``."""
        operators = found.case.operators
        nodes = f"{len(operators)} of {plural(found.nodes, 'node')}"
        unsure = "" if found.is_smallest else "; there was no time to try fewer"
        echo(f"{self.model}: {nodes} fail in the same way{unsure}")
        if quiet:
            return
        print_fields(
            [
                (
                    "nodes",
                    ", ".join([*operators[:SHOWN], *(["…"] if len(operators) > SHOWN else [])]),
                ),
                ("inputs", str(self.inputs)),
                ("fails with", found.failure),
                ("checked", f"{plural(found.checks, 'part')} in {duration(found.seconds)}"),
                ("to see it", check.shown(self.model, self.inputs)),
            ]
        )
