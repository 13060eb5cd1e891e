"""``neocpu compile``: turn an ONNX model into a shared object."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from neocpu.cli import options
from neocpu.cli.calibration import calibration_options
from neocpu.cli.databases import own_and_named, report_kept_measurements, writable_database
from neocpu.cli.parsing.compiling_options import accuracy, rules, shape_set, typical
from neocpu.cli.parsing.model_arguments import ModelName, operators
from neocpu.cli.processing import processing_options
from neocpu.foundation.console.terminal import Terminal, echo, print_fields
from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import peak_memory
from neocpu.foundation.import_tvm import import_tvm
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.option_words import GOALS, OPT_LEVELS, PRECISIONS, SOLVERS
from neocpu.foundation.own_process import collect_rarely, wait_idly
from neocpu.foundation.units import duration, plural, size
from neocpu.plan.text.artifact_text import precision_text
from neocpu.plan.text.compiled_part import CompiledPart, show_shapes, show_variants
from neocpu.plan.text.plan_text import (
    accuracy_text,
    calibration_fields,
    cost_sources,
    error_text,
    goal_fields,
    missed_text,
    processing_fields,
    sources_text,
    weights_text,
)
from neocpu.plan.text.tuning_summary import show_summary

EPILOG = """\b
Examples:
  neocpu compile resnet50 --tune-budget 60s
  neocpu compile net.onnx -o net.so --shape input:1,3,224,224
  neocpu compile net.onnx -o net.so --batch 8
  neocpu compile net.onnx -o net.so --shape 'x:{1,4,16},3,{224,320},{224,320}'
  neocpu compile net.onnx -o net.so --shape x:1,3,32..2048/32,32..2048/32 --typical 1,3,736,1280
  neocpu compile net.onnx --target llvm -mcpu=skylake-avx512  # checked if this host has AVX-512
  neocpu compile resnet50 --fat avx2,avx512,rpi4 -o resnet50.so
  neocpu compile net.onnx --input image=u8:nhwc:bgr:480x640 --resize 224x224:crop --output y=top5
  neocpu compile net.int8.onnx --fat avx2:int8,avx512-vnni:int8,rpi4 -o net.so"""


@click.command(epilog=EPILOG)
@click.argument("model", type=ModelName())
@click.option(
    "-o",
    "output",
    type=options.PATH,
    metavar="OUT.so",
    help="The file to write; by default the model's name with .so, in this folder.",
)
@options.target
@click.option(
    "--fat",
    type=options.NAMES,
    metavar="CPU,CPU,…",
    help="Compile for several CPUs into one file, in which each host loads the part that runs best "
    "there. CPUs are instruction sets (sse, avx2, avx512, avx512-vnni, amx, neon) or names of CPUs "
    "and boards, of any architecture; each may have a --precision of its own, as in avx2:int8.",
)
@shape_set
@typical
@operators
@options.batch
@click.option(
    "--goal",
    type=options.OneOf(GOALS),
    default="latency",
    help="Optimise the time of a single call on all threads, or the number of calls a second: as "
    "many calls at once as there are threads, each on one, as neocpu.load makes them with "
    "streams='auto'.",
)
@options.threads
@options.databases
@options.only_db
@click.option(
    "--tune-budget",
    type=options.DURATION,
    default="0",
    help="Time to spend on measuring workloads that no tuning database has: 90, 60s, 10m, 1h.",
)
@click.option(
    "--opt",
    type=options.OneOf(OPT_LEVELS),
    default="global",
    help="How far layouts are optimised: not at all (nchw); for each convolution alone "
    "(conv-layout); one block size for the whole network (uniform); or by a global search.",
)
@click.option(
    "--algorithms",
    type=options.NAMES,
    metavar="A,B,…",
    help="Use only these convolution algorithms, as in direct,depthwise. Winograd and Strassen "
    "turn an infinity in the image, and values near it, into NaN; the others keep it in place.",
)
@accuracy
@click.option(
    "--precision",
    type=options.OneOf(PRECISIONS),
    default="auto",
    help="auto: a quantised model, or any model with --calibrate, computes in 8-bit integers where "
    "that is faster in the network. int8: the same, but other models are refused. fp32: nothing "
    "computes in 8 bits. bf16: convolutions, dense layers and attention of any model compute in "
    "bfloat16 where that is faster, with larger errors.",
)
@click.option(
    "--small",
    is_flag=True,
    help="Compute in the narrowest numbers of --precision wherever the CPU can, whether or not "
    "that is faster.",
)
@processing_options.processing
@calibration_options.calibrate(required=False)
@calibration_options.limits
@calibration_options.data
@click.option(
    "--max-weights",
    type=options.SIZE,
    help="The most bytes that packed weights may take, as in 120MB: the fastest plan within that "
    "limit is used. By default the weights of a quantised network may take 45 % of their size in "
    "float32.",
)
@click.option(
    "--pack-at-load/--no-pack-at-load",
    default=True,
    show_default=False,
    help="For a set of shapes: store each weight in one packing, and make the packings that other "
    "plans need when the artifact is loaded (default); or store all packings, which makes the file "
    "larger and loads at once.",
)
@click.option(
    "--solver",
    type=options.OneOf(SOLVERS),
    default="auto",
    help="How the layout search is solved: exactly within --search-seconds, or else with the best "
    "plan found by then (auto); exactly, however long it takes (exact); or by one of the paper's "
    "methods (dp, pbqp).",
)
@click.option(
    "--search-seconds",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Time limit of the layout search with --solver auto or dp; 10 by default.",
)
@rules
@click.option("--no-verify", is_flag=True, help="Skip the comparison with the reference.")
@options.common
def command(
    terminal: Terminal,
    model: str,
    output: Path | None,
    target: str,
    fat: tuple[str, ...] | None,
    databases: tuple[Path, ...],
    only_db: bool,
    tune_budget: float,
    no_verify: bool,
    **others: Any,
) -> None:
    """Compile MODEL, an .onnx file or the name of a built-in network."""
    from neocpu.foundation.files import check_destination

    collect_rarely()
    wait_idly()
    start = time.perf_counter()
    path = _named_after(model) if output is None else output
    data = calibration_options.files(others["calibrate"])
    check_destination(path, others=(model, *own_and_named(databases), *data))
    if (
        fat
        and click.get_current_context().get_parameter_source("target") != ParameterSource.DEFAULT
    ):
        raise UsageError("--fat names the targets itself: drop --target, or name it in --fat")
    processing = processing_options.take(others)
    calibration = calibration_options.take(others)
    if tune_budget > 0:
        report_kept_measurements(terminal, databases)
    # The other options have the names of `neocpu.compile`'s arguments.
    settings: JsonObject = {
        **others,
        "databases": databases,
        "only_databases": only_db,
        "tune_budget": tune_budget,
        "verify": not no_verify,
        "processing": processing,
        **({} if calibration is None else calibration.arguments()),
    }
    import_tvm()
    with terminal.progress() as on_progress:
        settings["on_progress"] = on_progress
        if fat:
            parts = _compile_fat(model, fat, path, **settings)
        else:
            parts = [_compile(model, path, calibration is not None, target=target, **settings)]
    report = _CompileReport(
        artifact=path,
        size=path.stat().st_size,
        parts=tuple(parts),
        database=str(writable_database(databases)) if tune_budget > 0 else None,
        seconds=time.perf_counter() - start,
        # Child processes such as the linker do not count: they need far less.
        peak_bytes=peak_memory(),
    )
    terminal.result(report.to_json(), lambda: _show(report, quiet=terminal.quiet))


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompileReport:
    """The file that was written, its parts, and the time and memory of compiling it."""

    artifact: Path  # the file
    size: int  # bytes of the file
    parts: tuple[CompiledPart, ...]  # its parts, which have names if it is for several CPUs
    database: str | None  # the database with the measurements; None if tuning was not requested
    seconds: float  # time of the whole compilation
    peak_bytes: int  # peak of memory

    def to_json(self) -> JsonObject:
        parts = [part.to_json() for part in self.parts]
        return {
            "artifact": str(self.artifact),
            "bytes": self.size,
            **({"variants": parts} if self.parts[0].name else parts[0]),
            **({} if self.database is None else {"database": self.database}),
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
        }


def _compile(model: str, path: Path, calibrated: bool, **settings: Any) -> CompiledPart:
    import neocpu

    compiling = neocpu.compile_calibrated if calibrated else neocpu.compile
    with compiling(model, **settings) as compiled:
        compiled.hand_over(path)
        return CompiledPart.of(compiled)


def _named_after(model: str) -> Path:
    """Return the default output: a file in the current folder, named after the model."""
    path = Path(f"{Path(model).stem}.so")
    if os.path.abspath(model) == os.path.abspath(path):
        raise UsageError(
            f"{path} would be written over: if it is compiled already, neocpu run {path}; else "
            "name another file with -o"
        )
    return path


def _compile_fat(
    model: str, cpus: tuple[str, ...], path: Path, **settings: Any
) -> list[CompiledPart]:
    import neocpu

    return [
        CompiledPart.of(part.compiled, part.variant.name, part.variant.size)
        for part in neocpu.compile_fat(model, cpus, path, **settings)
    ]


def _show(report: _CompileReport, *, quiet: bool) -> None:
    echo(
        f"{report.artifact}: {size(report.size)} in {duration(report.seconds)}, "
        f"{size(report.peak_bytes)} of memory"
    )
    if quiet:
        return
    if report.parts[0].name:
        show_variants(report.parts)
    else:
        _show_plan(report.parts[0])
    for part in report.parts:
        if report.database is not None and part.tuning is not None:
            named = f" of {part.name}" if part.name else ""
            echo(f"tuning{named}:")
            show_summary(part.tuning, report.database)


def _show_plan(part: CompiledPart) -> None:
    plan, search, phases = part.plan, part.plan.search, part.phases
    slowest = sorted(phases, key=lambda name: -phases[name])[:3]
    sources, missed = sources_text(cost_sources(plan)), missed_text(plan)
    print_fields(
        [
            ("target", plan.target),
            *goal_fields(plan),
            ("opt", plan.opt),
            ("computes in", precision_text(plan.precision, plan.computes_in)),
            ("accuracy", accuracy_text(plan.accuracy)),
            ("weights", weights_text(plan.weights)),
            *processing_fields(plan),
            *calibration_fields(plan),
            (
                "convolutions",
                f"{len(plan.convolutions)} with {plural(part.schemes, 'distinct scheme')}"
                + (f"; costs: {sources}" if sources else ""),
            ),
            ("transforms", f"{len(plan.transforms)}, {duration(part.transforms_us / 1e6)}"),
            ("search", f"{search.solver}, {duration(search.seconds)}, {search.verdict}"),
            ("predicted", duration(plan.predicted_us / 1e6)),
            ("largest error", error_text(plan)),
            *([("before", missed)] if missed else []),
            *([("runs here", f"no, {part.obstacle}")] if part.obstacle else []),
            *(("hint", hint) for hint in part.hints.values() if hint),
            ("slowest", ", ".join(f"{name} {duration(phases[name])}" for name in slowest)),
        ]
    )
    if len(part.signatures) > 1:
        show_shapes(part.signatures)
