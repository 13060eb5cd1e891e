"""``neocpu compare``: the operator at which an artifact departs from its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from neocpu.cli import options
from neocpu.cli.parsing.model_arguments import ModelName, operators
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import AccuracyError, UsageError
from neocpu.foundation.import_tvm import import_tvm
from neocpu.foundation.own_process import collect_rarely
from neocpu.frontend.shapes.input_shapes import Given
from neocpu.plan.text.page_file import check_page_file, write_page_file

EPILOG = """\b
Examples:
  neocpu compare model.onnx model.so
  neocpu compare model.onnx model.so --inputs failing.npz
  neocpu compare model.onnx anysize.so --shape x:1,3,480,640
  neocpu compare fp32.so int8.so --html errors.html
  neocpu compare model.onnx model.so --json | jq .first.operator"""


@click.command(epilog=EPILOG)
@click.argument("model", type=ModelName(), metavar="MODEL|OTHER.so")
@click.argument("artifact", type=options.PATH)
@options.inputs
@options.input_seed
@options.shape
@operators
@options.threads
@click.option(
    "--force",
    is_flag=True,
    help="Compare although ARTIFACT was compiled from another model, whose tensors have the same "
    "names: one with other weights, or one that another tool quantised.",
)
@options.page
@options.common
def command(
    terminal: Terminal,
    model: str,
    artifact: Path,
    inputs: Path | None,
    seed: int,
    shapes: Mapping[str, Given],
    threads: int | None,
    force: bool,
    html: Path | None,
) -> int:
    """Compare ARTIFACT with the model it was compiled from, or with another artifact of it.

    Every tensor that the model and the artifact have in common is compared twice: as a run computes
    it, which shows how errors grow, and from exact inputs, which shows the error of its own
    operator. If an operator errs more than its algorithm may, the first such operator is named and
    the exit code is 6. Long lists show only the tensors at which errors grow or are too large; -v
    lists all. Shapes are taken from the artifact; --shape chooses one of a set of shapes or of
    ranges, and gives the values of inputs that compile made constants.
    """
    collect_rarely()
    check_page_file(html, (model, artifact, inputs))
    import_tvm()
    from neocpu.cli.array_files.arrays import read_archive, shapes_in_files
    from neocpu.frontend.shapes.input_shapes import InputShapes
    from neocpu.plan.text.divergence_text import show_divergence
    from neocpu.runtime.artifact import read_header
    from neocpu.verification.divergence.compare import (
        ComparisonInputs,
        compare_artifacts,
        compare_with_model,
    )
    from neocpu.verification.divergence.reference_tensors import is_artifact

    if is_artifact(model) and not is_artifact(artifact) and artifact.suffix == ".onnx":
        raise UsageError(f"the model comes first: neocpu compare {artifact} {model}")
    asked = InputShapes.parse(shapes)
    header = read_header(artifact)
    if header.sized is not None and inputs is not None and not asked.by_name:
        asked = replace(asked, by_name=shapes_in_files(inputs, (), header.inputs))
    specs = header.of(asked.by_name).inputs
    given = ComparisonInputs(None if inputs is None else read_archive(inputs, specs), seed)
    with terminal.progress() as report:
        if is_artifact(model):
            found = compare_artifacts(
                model, artifact, given, shapes=asked, threads=threads, force=force
            )
        else:
            found = compare_with_model(
                model,
                artifact,
                given,
                shapes=asked,
                threads=threads,
                force=force,
                on_progress=report,
            )
    document = found.to_json()
    if html is not None:
        from neocpu.plan.result_pages.divergence_page import divergence_page

        write_page_file(terminal, html, divergence_page(document))
    every = terminal.verbose > 0
    terminal.result(document, lambda: show_divergence(found, every=every))
    if found.first is None:
        return 0
    return terminal.fail(str(found.first), AccuracyError.exit_code)
