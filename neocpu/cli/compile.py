"""``neocpu compile``: an ONNX model in, a shared object out."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from neocpu.cli import options
from neocpu.cli.calibration import calibration_options
from neocpu.cli.databases import own_and_named, tell_what_is_kept, writable_database
from neocpu.cli.parsing import shape_options
from neocpu.cli.parsing.accuracy_option import accuracy
from neocpu.cli.parsing.model_arguments import ModelName, operators
from neocpu.cli.parsing.rule_options import rules
from neocpu.cli.processing import processing_options
from neocpu.foundation.console.terminal import Terminal, echo, print_fields
from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import peak_memory
from neocpu.foundation.import_tvm import import_tvm
from neocpu.foundation.option_words import GOALS, OPT_LEVELS, PRECISIONS, SOLVERS
from neocpu.foundation.own_process import collect_rarely, wait_idly
from neocpu.foundation.units import duration, plural, size
from neocpu.plan.text.artifact_text import computes_in, precision_text
from neocpu.plan.text.choice_fields import processing_fields
from neocpu.plan.text.fat_table import show_shapes, show_variants
from neocpu.plan.text.plan_text import (
    accuracy_text,
    calibration_fields,
    cost_sources,
    error_text,
    goal_fields,
    missed_text,
    sources_text,
    weights_text,
)
from neocpu.plan.text.tuning_summary import (
    bfloat16_hint,
    show_summary,
    tuning_document,
    weights_hint,
)

if TYPE_CHECKING:
    from neocpu.compilation.compiled_module import CompiledModule
    from neocpu.runtime.header import ArtifactHeader


EPILOG = """\b
Examples:
  neocpu compile resnet50 --tune-budget 60s
  neocpu compile net.onnx -o net.so --shape input:1,3,224,224
  neocpu compile net.onnx -o net.so --batch 8
  neocpu compile net.onnx -o net.so --shape 'x:{1,4,16},3,{224,320},{224,320}'
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
    type=options.Names(),
    metavar="CPU,CPU,…",
    help="Compile for several CPUs into one file, in which each host loads the part that runs best "
    "there. CPUs are instruction sets (sse, avx2, avx512, avx512-vnni, amx, neon) or names of CPUs "
    "and boards, of any architecture; each may have a --precision of its own, as in avx2:int8.",
)
@shape_options.shape_set
@operators
@options.batch
@click.option(
    "--goal",
    type=options.OneOf(GOALS),
    default="latency",
    show_default=True,
    help="Optimise the time of a single call on all threads, or the number of calls a second: as "
    "many calls at once as there are threads, each on one, as neocpu.load makes them with "
    "streams='auto'.",
)
@options.threads
@options.databases
@options.only_db
@click.option(
    "--tune-budget",
    type=options.Duration(),
    default="0",
    show_default=True,
    metavar="TIME",
    help="Time to spend on measuring workloads that no tuning database has: 90, 60s, 10m, 1h.",
)
@click.option(
    "--opt",
    type=options.OneOf(OPT_LEVELS),
    default="global",
    show_default=True,
    help="How far layouts are optimised: not at all (nchw); for each convolution alone "
    "(conv-layout); one block size for the whole network (uniform); or by a global search.",
)
@click.option(
    "--algorithms",
    type=options.Names(),
    metavar="A,B,…",
    help="Use only these convolution algorithms, as in direct,depthwise. Winograd and Strassen "
    "turn an infinity in the image, and values near it, into NaN; the others keep it in place.",
)
@accuracy
@click.option(
    "--precision",
    type=options.OneOf(PRECISIONS),
    default="auto",
    show_default=True,
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
    type=options.Size(),
    metavar="SIZE",
    help="The most bytes that packed weights may take, as in 120MB: the fastest plan within that "
    "limit is used. By default the weights of a quantised network may take 45 % of their size in "
    "float32.",
)
@click.option(
    "--pack-at-load/--no-pack-at-load",
    default=True,
    help="For a set of shapes: store each weight in one packing, and make the packings that other "
    "plans need when the artifact is loaded (default); or store all packings, which makes the file "
    "larger and loads at once.",
)
@click.option(
    "--solver",
    type=options.OneOf(SOLVERS),
    default="auto",
    show_default=True,
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
        tell_what_is_kept(terminal, databases)
    # The others are called as `neocpu.compile` calls them.
    settings: dict[str, Any] = {
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
            what: dict[str, Any] = {"variants": _compile_fat(model, fat, path, **settings)}
        else:
            what = _compile(model, path, calibration is not None, target=target, **settings)
    if tune_budget > 0:
        what["database"] = str(writable_database(databases))
    report = {
        "artifact": str(path),
        "bytes": path.stat().st_size,
        **what,
        "seconds": time.perf_counter() - start,
        # The linker, a child, needs far less.
        "peak_bytes": peak_memory(),
    }
    terminal.result(report, lambda: _show(report, quiet=terminal.quiet))


def _compile(model: str, path: Path, calibrated: bool, **settings: Any) -> dict[str, Any]:
    import neocpu

    compiling = neocpu.compile_calibrated if calibrated else neocpu.compile
    with compiling(model, **settings) as compiled:
        compiled.hand_over(path)
        return _plan_report(compiled)


def _named_after(model: str) -> Path:
    """Return the file in the current folder that is written where none is named."""
    path = Path(f"{Path(model).stem}.so")
    if os.path.abspath(model) == os.path.abspath(path):
        raise UsageError(
            f"{path} would be written over: if it is compiled already, neocpu run {path}; else "
            "name another file with -o"
        )
    return path


def _compile_fat(
    model: str, cpus: tuple[str, ...], path: Path, **settings: Any
) -> list[dict[str, Any]]:
    import neocpu

    return [
        {"name": part.variant.name, "bytes": part.variant.size, **_plan_report(part.compiled)}
        for part in neocpu.compile_fat(model, cpus, path, **settings)
    ]


def _plan_report(compiled: CompiledModule) -> dict[str, Any]:
    from neocpu.foundation.instruction_sets import code_obstacle, host_features

    plan, header = compiled.plan, compiled.header
    convolutions = [op for op in plan["ops"] if op["kind"] == "conv2d"]
    schemes = {tuple(op["scheme"].items()) for op in convolutions if op["scheme"]}
    return {
        "target": plan["target"],
        **{key: plan[key] for key in ("goal", "threads", "streams")},
        "opt": plan["opt"],
        "precision": plan["precision"],
        "computes_in": computes_in(plan),
        "accuracy": plan["accuracy"],
        "weights": plan["weights"],
        "convolutions": len(convolutions),
        "schemes": len(schemes),
        "cost_sources": cost_sources(plan),
        "transforms": len(plan["transforms"]),
        "transforms_us": sum(transform["cost_us"] for transform in plan["transforms"]),
        "predicted_us": plan["predicted_us"],
        "shapes": [_signature(each) for each in header.each],
        "search": plan["search"],
        **{key: plan[key] for key in ("admission", "verification", "unchecked", "missed")},
        **{key: plan[key] for key in ("calibration", "processing", "rules")},
        "obstacle": code_obstacle(header.machine, header.isa_features, host_features()),
        "phases": compiled.seconds,
        "tuning": None if (tuned := compiled.tuned) is None else tuning_document(tuned),
        "hint": weights_hint(plan),
        "bfloat16_hint": bfloat16_hint(plan),
    }


def _signature(header: ArtifactHeader) -> dict[str, Any]:
    plan = header.plan
    return {
        "inputs": {spec.name: list(spec.shape) for spec in header.inputs},
        **{key: plan[key] for key in ("predicted_us", "verification", "unchecked", "weights")},
        "accuracy": plan["accuracy"],
    }


def _show(report: Mapping[str, Any], *, quiet: bool) -> None:
    echo(
        f"{report['artifact']}: {size(report['bytes'])} in {duration(report['seconds'])}, "
        f"{size(report['peak_bytes'])} of memory"
    )
    if quiet:
        return
    if "variants" in report:
        show_variants(report["variants"])
    else:
        _show_plan(report)
    for each in report.get("variants", [report]) if "database" in report else ():
        named = f" of {each['name']}" if "name" in each else ""
        echo(f"tuning{named}:")
        show_summary(each["tuning"], report["database"])


def _show_plan(report: Mapping[str, Any]) -> None:
    search, phases = report["search"], report["phases"]
    slowest = sorted(phases, key=lambda name: -float(phases[name]))[:3]
    sources = sources_text(report["cost_sources"])
    missed, obstacle = missed_text(report), report["obstacle"]
    print_fields(
        [
            ("target", report["target"]),
            *goal_fields(report),
            ("opt", report["opt"]),
            ("computes in", precision_text(report)),
            ("accuracy", accuracy_text(report["accuracy"])),
            ("weights", weights_text(report["weights"])),
            *processing_fields(report),
            *calibration_fields(report),
            (
                "convolutions",
                f"{report['convolutions']} with {plural(report['schemes'], 'distinct scheme')}"
                + (f"; costs: {sources}" if sources else ""),
            ),
            ("transforms", f"{report['transforms']}, {duration(report['transforms_us'] / 1e6)}"),
            (
                "search",
                f"{search['solver']}, {duration(search['seconds'])}, {search['verdict']}",
            ),
            ("predicted", duration(report["predicted_us"] / 1e6)),
            ("largest error", error_text(report)),
            *([("before", missed)] if missed else []),
            *([("runs here", f"no, {obstacle}")] if obstacle else []),
            *(("hint", report[each]) for each in ("hint", "bfloat16_hint") if report[each]),
            ("slowest", ", ".join(f"{name} {duration(phases[name])}" for name in slowest)),
        ]
    )
    if len(report["shapes"]) > 1:
        show_shapes(report["shapes"])
