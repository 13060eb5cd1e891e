"""``neocpu reduce``: find the smallest part of a model that still fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.databases import own_and_named
from neocpu.cli.parsing.model_arguments import ModelName, operators
from neocpu.foundation.console.terminal import Terminal, echo, print_fields
from neocpu.foundation.errors import UsageError
from neocpu.foundation.files import replacing
from neocpu.foundation.import_tvm import import_tvm
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.own_process import collect_rarely, wait_idly
from neocpu.foundation.units import duration, plural

if TYPE_CHECKING:
    from neocpu.frontend.shapes.input_shapes import Given
    from neocpu.verification.reduction.checks import Check
    from neocpu.verification.reduction.reduce_model import Reduction
    from neocpu.verification.reduction.whole_graph import Case

EPILOG = """\b
Examples:
  neocpu reduce net.onnx --check does-not-compile --no-weights
  neocpu reduce net.onnx --inputs photo.npz --check differs
  neocpu reduce net.onnx --check 'neocpu compile {model} --precision bf16 -o bf16.so'
  neocpu reduce net.onnx --check './crashes.py {model} {inputs}' -o crash.onnx --budget 5m"""


SHOWN = 8  # number of operators that are listed


@click.command(epilog=EPILOG)
@click.argument("model", type=ModelName())
@click.option(
    "--check",
    "check",
    required=True,
    metavar="CHECK",
    help="The failure to keep: does-not-compile; differs (from the reference); slower (than ONNX "
    "Runtime, of neocpu[bench]); or a shell command, which counts as failing when its exit code is "
    "not 0 and is the one it gave for the whole model. {model} and {inputs} in the command become "
    "the paths of an .onnx and an .npz file.",
)
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE.onnx",
    help="The file to write, with its inputs beside it as .npz; by default the model's name with "
    ".reduced.onnx, in this folder.",
)
@click.option(
    "--inputs",
    "archive",
    type=options.PATH,
    metavar="FILE.npz",
    help="The model's inputs, by name or in order; random by default. Parts of the model get the "
    "values that these inputs lead to.",
)
@click.option(
    "--no-weights",
    is_flag=True,
    help="First replace the weights by random ones of the same shapes, for a file that may be "
    "shown to others. The model has to fail with these too.",
)
@click.option(
    "--budget",
    type=options.DURATION,
    default="10m",
    help="The time after which the smallest failing part found so far is written: 90, 60s, 10m, "
    "1h.",
)
@options.shape
@operators
@options.common
def command(
    terminal: Terminal,
    model: str,
    check: str,
    output: Path | None,
    archive: Path | None,
    no_weights: bool,
    budget: float,
    shapes: Mapping[str, Given],
) -> None:
    """Write the smallest part of MODEL, a file or a built-in network, that still fails."""
    collect_rarely()
    wait_idly()
    import_tvm()
    from neocpu.cli.array_files.arrays import read_archive, write_archive
    from neocpu.foundation.files import check_destination
    from neocpu.foundation.progress import Progress
    from neocpu.foundation.tensor_spec import random_inputs
    from neocpu.frontend.shapes.static_shapes import real_inputs, tensor_spec
    from neocpu.verification.reduction.checks import parse_check
    from neocpu.verification.reduction.reduce_model import reduce_model
    from neocpu.verification.reduction.static_model import static_model
    from neocpu.verification.reduction.whole_graph import WholeGraph

    asked = parse_check(check, write_archive)
    files = ReducedFiles(output or Path(f"{Path(model).stem}.reduced.onnx"))
    if files.inputs == files.model:
        raise UsageError(f"{files.model} is the file of the inputs; name an .onnx file with -o")
    for made in (files.model, files.inputs):
        check_destination(made, others=(model, archive, *own_and_named()))
    whole = static_model(model, shapes, weights=not no_weights)
    specs = [tensor_spec(value) for value in real_inputs(whole.graph)]
    inputs = random_inputs(specs, seed=0)
    if archive is not None:
        inputs |= read_archive(archive, specs)
    write = files.writer(terminal)
    with terminal.progress() as report:
        report(Progress("reduce", detail="running the whole model, for the values of its tensors"))
        graph, name = WholeGraph.of(whole, inputs), files.model.stem
        found = reduce_model(
            graph, asked, name, budget=budget, on_progress=report, on_smaller=write
        )
    write(found.case)
    terminal.result(
        files.document(found, asked), lambda: files.show(found, asked, quiet=terminal.quiet)
    )


@dataclass(frozen=True, slots=True)
class ReducedFiles:
    """The files of a reduced model: the model, and beside it its inputs."""

    model: Path

    @property
    def inputs(self) -> Path:
        """The archive beside the model."""
        return self.model.with_suffix(".npz")

    def writer(self, terminal: Terminal) -> Callable[[Case], None]:
        """Return a function that writes a part of the model, which Ctrl-C will report."""
        from neocpu.cli.array_files.arrays import write_archive

        def write(case: Case) -> None:
            data = case.model.SerializeToString()
            with replacing(self.model, len(data)) as file:
                file.write(data)
            write_archive(self.inputs, case.inputs)
            nodes = plural(len(case.operators), "node")
            terminal.kept = lambda: f"{self.model} has the smallest part so far, {nodes}"

        return write

    def document(self, found: Reduction, check: Check) -> JsonObject:
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
