"""Benchmark results of several models as tables: a row for each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from neocpu.bench.engines.contenders import NNCF, OWN, OWN_FLOAT, SIGNED
from neocpu.bench.race.coldstart_table import cold_start_table
from neocpu.bench.race.latency_report import LatencyReport
from neocpu.bench.race.latency_tables import difference, kernel_table, latency_table
from neocpu.bench.race.report import ModelReport, SuiteReport
from neocpu.bench.results.table import Table, interval, ms
from neocpu.foundation.units import plural

NONE = "-"


def tables(report: SuiteReport, peers: Sequence[str]) -> list[Table]:
    """Return the comparison of all models, then whatever else was asked for."""
    models = report.models
    optional = (memory_table(models, peers), roofline_table(models))
    made = [summary_table(report, peers), *(table for table in optional if table is not None)]
    return made + [scaling_table(model) for model in models if model.scaling is not None]


def details(models: Sequence[ModelReport]) -> list[Table]:
    """Return the tables that explain the first ones."""
    optional = (compile_table(models), prediction_table(models))
    made = [detail_table(models), *(table for table in optional if table is not None)]
    return made + [table for model in models for table in _single_tables(model)]


def model_tables(model: ModelReport) -> list[Table]:
    """Return all there is to see of a model that was benchmarked alone."""
    where = f"{model.name}, threads: {model.latency.threads}"
    latency = latency_table(f"Latency of {where}", model.latency, OWN)
    made = [replace(latency, notes=(*latency.notes, *_remarks(model)))]
    if model.scaling is not None:
        made.append(scaling_table(model))
    if (roofline := roofline_table((model,))) is not None:
        made.append(roofline)
    return made + _single_tables(model)


def _single_tables(model: ModelReport) -> list[Table]:
    """Return the tables that show one model, however many there are."""
    made = []
    where = f"{model.name}, threads: {model.latency.threads}"
    if model.kernels is not None:
        made.append(kernel_table(f"Convolutions of {where}", model.kernels))
    if model.cold_start is not None:
        title = f"Process start to first output of {where}"
        made.append(cold_start_table(title, model.cold_start, OWN))
    return made


def _remarks(model: ModelReport) -> list[str]:
    """Return what a row of the tables of many models would say besides the latency."""
    remarks = []
    if (done := model.compilation) is not None:
        peak = f"{done.peak_bytes / 1e6:.0f} MB of memory"
        size = f"{done.model_bytes / 1e6:.1f} MB"
        remarks.append(f"Compiled in {done.seconds:.1f} s with {peak}; the model has {size}.")
    if model.planned is not None:
        error = model.prediction_error
        off = "" if error is None else f" ({error:+.1%})"
        predicted = f"{ms(model.planned.predicted)} ms{off}"
        remarks.append(f"Predicted: {predicted}; search gap {model.planned.gap:.1%}.")
        if model.planned.integer_layers == 0:
            remarks.append(f"No layer is faster in integers: {OWN} computes what {OWN_FLOAT} does.")
        elif model.planned.integer_layers is not None:
            remarks.append(f"{plural(model.planned.integer_layers, 'layer')} in integers.")
    return remarks


def summary_table(report: SuiteReport, peers: Sequence[str]) -> Table:
    """Return the median latencies, the fastest in bold, and how neocpu compares with it."""
    found = {result.label for model in report.models for result in model.latency.results}
    labels = (
        OWN,
        *({OWN_FLOAT} & found),
        *peers,
        *(each for each in (SIGNED, NNCF) if each in found),
    )
    rows, bold = [], set()
    for number, model in enumerate(report.models):
        rows.append(_summary_row(model, labels))
        right = [result for result in model.latency.results if result.agrees]
        if len(right) > 1:
            best = min(right, key=lambda result: result.median)
            bold.add((number, 1 + labels.index(best.label)))
    columns = len(labels) + 5
    measured = {model.name for model in report.models}
    for failure in report.failures:
        if failure.name not in measured:
            rows.append((failure.name, "failed", *[NONE] * (columns - 2)))
    header = (
        "model",
        *labels,
        "best peer / neocpu",
        "predicted",
        "compile s",
        "gap",
    )
    return Table("Latency in ms", header, tuple(rows), _summary_notes(report), frozenset(bold))


def _summary_row(model: ModelReport, labels: Sequence[str]) -> tuple[str, ...]:
    ratio, planned, compilation = model.ratio, model.planned, model.compilation
    return (
        model.name,
        *(_latency(model.latency, label) for label in labels),
        NONE if ratio is None else interval(ratio),
        NONE if planned is None else ms(planned.predicted),
        NONE if compilation is None else f"{compilation.seconds:.1f}",
        NONE if planned is None else f"{planned.gap:.1%}",
    )


def _latency(report: LatencyReport, label: str) -> str:
    result = report.find(label)
    if result is None:
        failed = any(failure.label == label for failure in report.failures)
        return "failed" if failed else NONE
    wrong = "" if result.agrees else "wrong"
    # Where precisions differ, a time says little without the error that it came with.
    error = f"{result.error:.1g}" if report.reference == OWN_FLOAT != label else ""
    beside = ", ".join(word for word in (wrong, error) if word)
    return f"{ms(result.median)} ({beside})" if beside else ms(result.median)


def _summary_notes(report: SuiteReport) -> tuple[str, ...]:
    notes = []
    if report.worst is not None:
        model, ratio = report.worst
        assert model.best_peer is not None
        count = len(report.compared)
        close = sum(not other.decided for _, other in report.compared)
        notes += [
            f"Geometric mean of (best peer / {OWN}) over {plural(count, 'model')}: "
            f"{report.geometric_mean:.3f}.",
            f"Worst row: {model.name}, {interval(ratio)} against {model.best_peer.label}.",
            f"{OWN} is the fastest on {report.wins} of {plural(count, 'model')}"
            + (f"; on {close} it is too close to tell." if close else "."),
        ]
    if report.memory_ratios:
        ratios = [ratio for _, ratio in report.memory_ratios]
        model, most = max(report.memory_ratios, key=lambda pair: pair[1])
        notes.append(
            "Peak resident memory over the median peer's: geometric mean "
            f"{statistics.geometric_mean(ratios):.2f}, at most {most:.2f} ({model.name})."
        )
    if report.prediction_error is not None:
        notes.append(
            f"Predicted latency is off by {report.prediction_error:.1%} (median over the models)."
        )
    notes += map(str, report.failures)
    notes += [f"{m.name}: {warning}" for m in report.models for warning in m.latency.warnings]
    return tuple(notes)


def detail_table(models: Sequence[ModelReport]) -> Table:
    """Return percentiles, noise, memory and accuracy of every engine on every model."""
    rows = tuple(
        (
            model.name,
            f"{result.label} {result.version}",
            *(ms(seconds) for seconds in (result.p50, result.p90, result.p99)),
            f"{result.spread:.1%}",
            f"{result.load_seconds:.2f}",
            f"{result.peak_rss / 1e6:.0f}" if result.peak_rss else NONE,
            difference(model.latency, result),
        )
        for model in models
        for result in model.latency.results
    )
    header = (
        "model",
        "engine",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "spread of rounds",
        "load s",
        "peak MB",
        "error",
    )
    return Table("Percentiles, load time, memory and accuracy", header, rows)


def memory_table(models: Sequence[ModelReport], peers: Sequence[str]) -> Table | None:
    """Return the peak memory of each engine, and neocpu's share of the median peer's."""
    if all(model.memory_ratio is None for model in models):
        return None
    rows = tuple(
        (
            model.name,
            *(_peak(model.latency, label) for label in (OWN, *peers)),
            NONE if model.memory_ratio is None else f"{model.memory_ratio:.2f}",
        )
        for model in models
    )
    header = ("model", OWN, *peers, f"{OWN} / median peer")
    notes = ("Of a process that loads one engine and one model and runs it; weights included.",)
    return Table("Peak resident memory in MB", header, rows, notes)


def _peak(report: LatencyReport, label: str) -> str:
    result = report.find(label)
    return f"{result.peak_rss / 1e6:.0f}" if result is not None and result.peak_rss else NONE


def compile_table(models: Sequence[ModelReport]) -> Table | None:
    """Return what compiling took, beside the bound of six times the model and 1 GB."""
    rows = tuple(
        (
            model.name,
            f"{done.model_bytes / 1e6:.1f}",
            f"{done.artifact_bytes / 1e6:.1f}",
            f"{done.seconds:.1f}",
            f"{done.peak_bytes / 1e6:.0f}",
            f"{done.peak_bytes / (6 * done.model_bytes + 1e9):.0%}",
        )
        for model in models
        if (done := model.compilation) is not None
    )
    header = ("model", "model MB", "artifact MB", "seconds", "peak MB", "of 6 x model + 1 GB")
    return Table("Compilation", header, rows) if rows else None


def prediction_table(models: Sequence[ModelReport]) -> Table | None:
    """Return what the plans promised and what was measured."""
    rows = tuple(
        (
            model.name,
            f"{planned.gap:.2%}",
            f"{planned.search_seconds:.2f}",
            ms(planned.predicted),
            NONE if model.own is None else ms(model.own.median),
            NONE if model.prediction_error is None else f"{model.prediction_error:+.1%}",
        )
        for model in models
        if (planned := model.planned) is not None
    )
    header = ("model", "search gap", "search s", "predicted ms", "measured ms", "error")
    return Table("Search and prediction", header, rows) if rows else None


def roofline_table(models: Sequence[ModelReport]) -> Table | None:
    """Return how near each model comes to the machine's limits."""
    rooflines = [model.roofline for model in models if model.roofline is not None]
    if not rooflines:
        return None
    rows = tuple(
        (
            one.model,
            ms(one.seconds),
            f"{one.flops / 1e9:.2f}",
            f"{one.flops / one.seconds / 1e9:.0f}",
            f"{one.fma_share:.0%}",
            f"{one.dram_share:.0%}",
            one.bound,
            ms(one.lower_bound),
            f"{one.share:.0%}",
        )
        for one in rooflines
    )
    header = (
        "model",
        "measured ms",
        "GFLOP",
        "GFLOP/s",
        "of FMA peak",
        "of DRAM speed",
        "bound by",
        "bound ms",
        "of the bound",
    )
    limits = rooflines[0].limits
    notes = (
        f"Measured limits with {plural(limits.threads, 'thread')}: "
        f"{limits.flops / 1e9:.0f} GFLOP/s in float32 multiply-adds, "
        f"{limits.dram / 1e9:.1f} GB/s read from memory.",
        "Operations are those of direct convolution: Winograd's algorithm can exceed its bound.",
        *limits.warnings,
    )
    return Table("Roofline", header, rows, notes)


def scaling_table(model: ModelReport) -> Table:
    """Return a model's latency at every number of threads (paper Figure 4)."""
    scaling = model.scaling
    assert scaling is not None
    faster = {label: scaling.speedups(label) for label in scaling.labels}

    def cell(label: str, threads: int) -> str:
        text = _latency(scaling.reports[threads], label)
        ratio = faster[label].get(threads)
        return text if ratio is None else f"{text} (x {ratio.value:.2f})"

    rows = tuple(
        (str(threads), *(cell(label, threads) for label in scaling.labels))
        for threads in scaling.threads
    )
    header = ("threads", *(f"{label} ms (speed-up)" for label in scaling.labels))
    notes = tuple(
        f"{plural(threads, 'thread')}: {warning}"
        for threads, report in scaling.reports.items()
        if report is not model.latency
        for warning in report.warnings
    )
    return Table(f"Scaling of {model.name}", header, rows, notes)
