"""``neocpu bench``: how fast a model is, beside other engines and beside the machine's limits."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neocpu.cli import options
from neocpu.cli.terminal import Terminal, print_table
from neocpu.schedules.errors import ArtifactError, UsageError, did_you_mean

if TYPE_CHECKING:
    from neocpu.bench.coldstart import ColdStartReport
    from neocpu.bench.kernels import KernelReport
    from neocpu.bench.latency import LatencyReport
    from neocpu.bench.subject import Subject
    from neocpu.bench.tables import Table
    from neocpu.progress import ProgressCallback

EPILOG = """\b
Examples:
  neocpu bench resnet50 --vs onnxruntime,openvino
  neocpu bench resnet50.so --model resnet50 --vs onnxruntime --cold-start
  neocpu bench net.onnx --ablation --kernels --markdown > results.md"""


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure of every model."""

    peers: tuple[str, ...]
    threads: int
    rounds: int
    databases: tuple[Path, ...]
    ablation: bool
    kernels: bool
    cold_start: bool


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured of one model."""

    subject: Subject
    latency: LatencyReport
    ablation: LatencyReport | None
    kernels: KernelReport | None
    cold_start: ColdStartReport | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        reports = {
            "latency": self.latency,
            "ablation": self.ablation,
            "kernels": self.kernels,
            "cold_start": self.cold_start,
        }
        return {
            "model": self.subject.name,
            "target": self.subject.header.target,
            "compile_seconds": self.subject.compile_seconds,
            **{name: report and report.to_json() for name, report in reports.items()},
        }

    def tables(self) -> list[Table]:
        """Return a table for each report."""
        from neocpu.bench import tables

        where = f"{self.subject.name}, threads: {self.latency.threads}"
        made = [tables.latency_table(f"Latency of {where}", self.latency, "neocpu")]
        if self.ablation is not None:
            made.append(tables.ablation_table(f"Ablation of {where}", self.ablation))
        if self.kernels is not None:
            made.append(tables.kernel_table(f"Convolutions of {where}", self.kernels))
        if self.cold_start is not None:
            title = f"Process start to first output of {where}"
            made.append(tables.cold_start_table(title, self.cold_start, "neocpu"))
        return made


@click.command(epilog=EPILOG)
@click.argument("models", metavar="MODEL|OUT.so…", nargs=-1, required=True)
@click.option(
    "--vs",
    "peers",
    type=options.Names(),
    default=None,
    metavar="A,B,…",
    help="Engines to compare with: onnxruntime, openvino.",
)
@click.option(
    "--model",
    "source",
    metavar="FILE.onnx",
    help="The model OUT.so was compiled from, which the other engines run.",
)
@options.threads
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=12,
    show_default=True,
    metavar="N",
    help="Rounds in which all engines run in turn.",
)
@options.shape
@options.databases
@click.option("--ablation", is_flag=True, help="Also measure every level of compile --opt.")
@click.option(
    "--kernels", is_flag=True, help="Also measure every convolution against the FMA peak."
)
@click.option("--cold-start", is_flag=True, help="Also measure process start to first output.")
@click.option("--markdown", is_flag=True, help="Print the tables in Markdown.")
@options.common
def command(
    terminal: Terminal,
    models: tuple[str, ...],
    peers: tuple[str, ...] | None,
    source: str | None,
    threads: int | None,
    rounds: int,
    shapes: Mapping[str, tuple[int, ...]],
    databases: tuple[Path, ...],
    ablation: bool,
    kernels: bool,
    cold_start: bool,
    markdown: bool,
) -> None:
    """Measure latency: of a MODEL, compiled first, or of an OUT.so that neocpu compile wrote.

    Every engine runs in a process of its own, in float32 and on the same number of threads; their
    outputs are compared too.
    """
    from neocpu.schedules.host import usable_cpus

    if source is not None and (len(models) > 1 or not _is_artifact(models[0])):
        raise UsageError("--model goes with one OUT.so: it names the model that was compiled")
    request = Request(
        _available(terminal, peers or ()),
        threads or usable_cpus(),
        rounds,
        databases,
        ablation,
        kernels,
        cold_start,
    )
    results = []
    for model in models:
        with (
            tempfile.TemporaryDirectory(prefix="neocpu-bench-") as folder,
            terminal.progress() as on_progress,
        ):
            subject = _subject(model, source, shapes, request, Path(folder), on_progress)
            results.append(_measure(subject, request, Path(folder), on_progress))
    document = {"machine": _machine(), "results": [one.to_json() for one in results]}
    terminal.result(document, lambda: _show(results, markdown=markdown))


def _is_artifact(model: str) -> bool:
    return Path(model).suffix == ".so"


def _available(terminal: Terminal, peers: Sequence[str]) -> tuple[str, ...]:
    """Return the peers that are installed, and say how to install the others."""
    from neocpu.bench.engines import PEERS, installed

    for peer in peers:
        if peer not in PEERS:
            hint = did_you_mean(peer, PEERS)
            raise UsageError(f"no engine '{peer}' for --vs; known: {', '.join(PEERS)}{hint}")
    for peer in peers:
        if not installed(peer):
            terminal.note(f"{peer} is not installed, skipped: pip install 'neocpu[bench]'")
    return tuple(dict.fromkeys(peer for peer in peers if installed(peer)))


def _subject(
    model: str,
    source: str | None,
    shapes: Mapping[str, tuple[int, ...]],
    request: Request,
    folder: Path,
    on_progress: ProgressCallback,
) -> Subject:
    from neocpu.bench.subject import compile_subject, open_subject

    if _is_artifact(model):
        if shapes:
            raise UsageError(f"--shape goes with a MODEL; the shapes of {model} are fixed")
        return open_subject(Path(model), source, folder)
    return compile_subject(
        model,
        folder,
        threads=request.threads,
        shapes=shapes,
        databases=request.databases,
        # Outputs are compared with a peer's, if there is one.
        verify=not request.peers,
        on_progress=on_progress,
    )


def _measure(
    subject: Subject, request: Request, folder: Path, on_progress: ProgressCallback
) -> Results:
    from neocpu.bench.ablation import measure_ablation
    from neocpu.bench.coldstart import measure_cold_start
    from neocpu.bench.latency import LatencyOptions, measure_latency
    from neocpu.tensor_spec import random_inputs

    inputs = random_inputs(subject.header.inputs, seed=0)
    measurement = LatencyOptions(rounds=request.rounds)
    contenders = subject.contenders(request.peers)
    threads = request.threads
    latency = measure_latency(
        contenders,
        inputs,
        threads,
        measurement,
        reference=next(iter(request.peers), None),
        on_progress=on_progress,
    )
    for failure in latency.failures:
        if failure.label == "neocpu":
            raise ArtifactError(f"{subject.artifact} does not run: {failure.reason}")
    ablation = kernels = cold_start = None
    if request.ablation:
        model = subject.require_model()
        ablation = measure_ablation(
            model, inputs, threads, request.databases, folder, measurement, on_progress
        )
    if request.kernels:
        kernels = _kernels(subject, request, on_progress)
    if request.cold_start:
        cold_start = measure_cold_start(contenders, inputs, threads, on_progress=on_progress)
    return Results(subject, latency, ablation, kernels, cold_start)


def _kernels(subject: Subject, request: Request, on_progress: ProgressCallback) -> KernelReport:
    from neocpu.bench.kernels import best_cases, convolutions, measure_kernels
    from neocpu.frontend.load import load_model
    from neocpu.schedules.target import host_target
    from neocpu.tuning import open_store

    target, threads = host_target(), request.threads
    workloads = convolutions(load_model(subject.require_model()))
    if not workloads:
        raise UsageError(f"{subject.name} has no convolutions for --kernels to measure")
    cases = best_cases(workloads, open_store(request.databases), target, threads)
    return measure_kernels(cases, target, threads, on_progress=on_progress)


def _machine() -> dict[str, Any]:
    return {
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Processor"):
                return value.strip()
    return platform.machine()


def _show(results: Sequence[Results], *, markdown: bool) -> None:
    tables = [table for one in results for table in one.tables()]
    if markdown:
        print("\n".join(table.markdown() for table in tables), end="")
        return
    for number, table in enumerate(tables):
        print(table.title if number == 0 else f"\n{table.title}")
        print_table(table.header, table.rows, right=table.header[1:])
        for note in table.notes:
            print(f"  {note}")
