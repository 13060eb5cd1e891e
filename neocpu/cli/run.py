"""``neocpu run``: run an artifact on arrays from files, or on random ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neocpu.cli import options
from neocpu.foundation.console.terminal import Terminal, echo, print_fields
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import duration
from neocpu.plan.text.columns import print_columns

if TYPE_CHECKING:
    from neocpu.cli.array_files.arrays import AnyArray
    from neocpu.foundation.tensor_spec import TensorSpec
    from neocpu.frontend.shapes.input_shapes import Given
    from neocpu.runtime.module import Module
    from neocpu.runtime.thread_pool import Threads

TOP = 5

EPILOG = """\b
Examples:
  neocpu run resnet50.so --repeat 50
  neocpu run resnet50.so --input image.npy --outputs scores.npz
  neocpu run net.so --input image=a.npy --input mask=b.npy
  neocpu run anysize.so --shape x:1,3,480,640
  neocpu run resnet50.so --repeat 5 --trace timeline.json"""


@click.command(epilog=EPILOG)
@click.argument("artifact", type=options.PATH)
@options.inputs
@click.option(
    "--input",
    "named",
    multiple=True,
    metavar="[NAME=]FILE.npy",
    help="One input; the name may be left out if the model has only one. Repeatable.",
)
@click.option(
    "-o",
    "--outputs",
    type=options.PATH,
    metavar="FILE.npz",
    help="Write the outputs to an archive.",
)
@options.input_seed
@options.count("--repeat", help="After the first run, run N times more and print the latency.")
@click.option(
    "--trace",
    type=options.PATH,
    metavar="FILE.json",
    help="Write the times of every kernel and of each thread's tasks in the measured runs (without "
    "--repeat in the only one), for ui.perfetto.dev. Tracing slows runs a little.",
)
@options.one_shape(
    " A set of shapes that differ in the batch takes any other batch too. Where extents may vary, "
    "inputs from files tell it."
)
@options.run_threads
@options.common
def command(
    terminal: Terminal,
    artifact: Path,
    inputs: Path | None,
    named: tuple[str, ...],
    shapes: Mapping[str, Given],
    outputs: Path | None,
    seed: int,
    repeat: int | None,
    trace: Path | None,
    threads: Threads,
) -> None:
    """Run ARTIFACT, a file that neocpu compile wrote."""
    from neocpu.cli.array_files.arrays import (
        chosen_inputs,
        inputs_of_files,
        read_inputs,
        write_archive,
    )
    from neocpu.foundation.files import check_destination
    from neocpu.foundation.tensor_spec import random_inputs
    from neocpu.runtime.artifact import read_header
    from neocpu.runtime.module import load

    header = read_header(artifact)
    read = (artifact, inputs, *named, *(text.partition("=")[2] for text in named))
    check_destination(outputs, others=read)
    check_destination(trace, "--trace", (*read, outputs))
    given = bool(inputs or named)
    by_files = given and not shapes
    choices = inputs_of_files(header, inputs, named) if by_files else chosen_inputs(header, shapes)
    arrays = read_inputs(inputs, named, choices) if given else random_inputs(choices[0], seed)
    with load(artifact, threads) as module:
        if trace is not None:
            module.start_trace()
        first, results = _timed(module, arrays)
        if trace is not None and repeat:
            module.start_trace()  # again, without the first run
        seconds = [_timed(module, arrays)[0] for _ in range(repeat or 0)]
        report = _report(artifact, module, arrays, results, [first, *seconds])
        timeline = None if trace is None else module.stop_trace()
    report["seed"] = None if given else seed
    if outputs is not None:
        write_archive(outputs, results)
        report["saved"] = str(outputs)
    if timeline is not None and trace is not None:
        timeline.write(trace)
        report["trace"] = str(trace)
    terminal.result(report, lambda: _show(report))


def _timed(module: Module, arrays: Mapping[str, AnyArray]) -> tuple[float, dict[str, AnyArray]]:
    start = time.perf_counter()
    results = module.run(arrays)
    return time.perf_counter() - start, results


def _report(
    artifact: Path,
    module: Module,
    arrays: Mapping[str, AnyArray],
    results: Mapping[str, AnyArray],
    seconds: Sequence[float],
) -> JsonObject:
    first, *repeats = seconds
    return {
        "artifact": str(artifact),
        "name": module.metadata.name,
        "target": module.metadata.target,
        "threads": module.threads,
        "inputs": [
            {**spec.to_json(), "shape": list(arrays[spec.name].shape)} for spec in module.inputs
        ],
        "outputs": [_describe(spec, results[spec.name]) for spec in module.outputs],
        "first_run_ms": first * 1e3,
        "latency_ms": {
            "runs": len(repeats),
            "median": statistics.median(repeats) * 1e3,
            "min": min(repeats) * 1e3,
            "max": max(repeats) * 1e3,
        }
        if repeats
        else None,
        "saved": None,
        "trace": None,
    }


def _describe(spec: TensorSpec, array: AnyArray) -> JsonObject:
    """Return the description of an output for one line; classes are ranked."""
    import numpy as np

    from neocpu.foundation.bfloat16 import NAME, from_bits

    array = from_bits(array) if spec.dtype == NAME else array
    numbers = array.astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    row = array.reshape(-1)
    classes = array.ndim >= 2 and array.shape[1] == array.size > TOP and row.dtype.kind == "f"
    ranked = np.argsort(-row, kind="stable")[:TOP].tolist() if classes else []
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(array.shape),
        "min": float(numbers.min()) if numbers.size else None,
        "max": float(numbers.max()) if numbers.size else None,
        "mean": float(numbers.mean()) if numbers.size else None,
        "not_finite": int(array.size - numbers.size),
        "top": ranked,
    }


def _show(report: Mapping[str, Any]) -> None:
    latency = report["latency_ms"]
    inputs = ", ".join(
        f"{spec['name']} {spec['dtype']}[{','.join(map(str, spec['shape']))}]"
        for spec in report["inputs"]
    )
    fields = [
        ("target", report["target"]),
        ("threads", str(report["threads"])),
        ("inputs", inputs if report["seed"] is None else f"{inputs}, random"),
        ("first run", duration(report["first_run_ms"] / 1e3)),
    ]
    if latency:
        fields.append(
            (
                "latency",
                f"median {duration(latency['median'] / 1e3)}, fastest "
                f"{duration(latency['min'] / 1e3)}, slowest {duration(latency['max'] / 1e3)} "
                f"of {latency['runs']} runs",
            )
        )
    if report["saved"]:
        fields.append(("saved", report["saved"]))
    if report["trace"]:
        fields.append(("timeline", report["trace"]))
    echo(report["name"])
    print_fields(fields)
    echo()
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "output": lambda output: output["name"],
        "dtype": lambda output: output["dtype"],
        "shape": lambda output: "x".join(map(str, output["shape"])) or "scalar",
        "min": lambda output: _number(output["min"]),
        "mean": lambda output: _number(output["mean"]),
        "max": lambda output: _number(output["max"]),
        "remarks": _remarks,
    }
    print_columns(report["outputs"], columns, ("min", "mean", "max"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _remarks(output: Mapping[str, Any]) -> str:
    remarks = []
    if output["not_finite"]:
        remarks.append(f"{output['not_finite']} values are not finite")
    if output["top"]:
        remarks.append(f"highest: {', '.join(map(str, output['top']))}")
    return "; ".join(remarks)
