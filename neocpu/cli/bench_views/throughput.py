"""``neocpu bench throughput``: images a second and memory of simultaneous calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from neocpu.cli import options
from neocpu.cli.bench_views.arguments import (
    RecordingCommand,
    check_source,
    compared,
    counts_of,
    of_models_or_artifacts,
    rounds,
)
from neocpu.cli.bench_views.view import Asked, Collected, available, note_missing_charts, report
from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import plural

if TYPE_CHECKING:
    from neocpu.bench.throughput.throughput_report import ThroughputReport

EPILOG = """\b
Examples:
  neocpu bench throughput resnet50 --vs onnxruntime,openvino
  neocpu bench throughput resnet50.so --model resnet50 --vs openvino --streams 1,2,4
  neocpu bench throughput --suite paper --vs onnxruntime,openvino -o throughput.md"""


@click.command(cls=RecordingCommand, epilog=EPILOG)
@of_models_or_artifacts
@compared
@options.threads
@click.option(
    "--streams",
    type=counts_of("streams"),
    metavar="N[,N…]",
    help="Number of simultaneous calls, which share the threads; by default 1, 2, 4, … up to one "
    "for each thread.",
)
@rounds
def command(
    terminal: Terminal,
    asked: Asked,
    peers: tuple[str, ...] | None,
    source: str | None,
    streams: tuple[int, ...] | None,
    rounds: int,
) -> int:
    """Measure images a second and memory of simultaneous calls of a MODEL or an OUT.so.

    Every engine runs them in its own ways: neocpu with streams, ONNX Runtime with several sessions
    or several callers of one, OpenVINO with the hint THROUGHPUT and its queue, and ncnn with
    several nets. The fastest way of each engine counts.
    """
    from neocpu.bench.throughput.concurrent_calls import ThroughputRequest, measure_throughputs
    from neocpu.bench.throughput.modes import default_counts
    from neocpu.bench.throughput.presentation import present
    from neocpu.bench.throughput.throughput_report import Summary

    check_source(asked, source)
    counts = streams or default_counts(asked.threads)
    if counts[-1] > asked.threads:
        raise UsageError(
            f"--streams {counts[-1]}: each stream needs a thread, and there are only "
            f"{plural(asked.threads, 'thread')}"
        )
    note_missing_charts(terminal, asked.page)
    there, missing = available(terminal, peers or ())
    request = ThroughputRequest(
        peers=there,
        threads=asked.threads,
        streams=counts,
        rounds=rounds,
        databases=asked.databases,
        shapes=asked.shapes,
        source=source,
    )
    return report(
        terminal,
        asked,
        f"Throughput of {asked.page.models}",
        measure_throughputs,
        request,
        lambda found, run: present(found.reports, run),
        peers=there,
        missing=missing,
        rounds=rounds,
        summary=lambda found: {"summary": Summary.of(found.reports).to_json()},
        wrong=_wrong,
    )


def _wrong(found: Collected[ThroughputReport]) -> str:
    wrong = [f"{one.name} as {label}" for one in found.reports for label in one.wrong]
    return f"wrong outputs: {', '.join(wrong)}" if wrong else ""
