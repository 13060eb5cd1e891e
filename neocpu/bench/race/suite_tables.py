"""Benchmark results as tables: one model alone, or a row for each of several."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from neocpu.bench.engines.contenders import NNCF, OWN, OWN_FLOAT, SIGNED
from neocpu.bench.engines.measured_model import Compilation
from neocpu.bench.limits.roofline import Roofline
from neocpu.bench.race.coldstart import cold_start_table
from neocpu.bench.race.convolution_kernels import KernelReport, KernelResult
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult
from neocpu.bench.race.report import ModelReport, SuiteReport
from neocpu.bench.results.table import Columns, Table, interval, ms
from neocpu.foundation.units import plural

NONE = "-"


def tables(report: SuiteReport, peers: Sequence[str]) -> list[Table]:
    models = report.models
    optional = (memory_table(models, peers), roofline_table(models))
    made = [summary_table(report, peers), *(table for table in optional if table is not None)]
    return made + [scaling_table(model) for model in models if model.scaling is not None]


def details(models: Sequence[ModelReport]) -> list[Table]:
    optional = (compile_table(models), prediction_table(models))
    made = [detail_table(models), *(table for table in optional if table is not None)]
    return made + [table for model in models for table in _single_tables(model)]


def model_tables(model: ModelReport) -> list[Table]:
    where = f"{model.name}, threads: {model.latency.threads}"
    latency = latency_table(f"Latency of {where}", model.latency, OWN)
    made = [replace(latency, notes=(*latency.notes, *_remarks(model)))]
    if model.scaling is not None:
        made.append(scaling_table(model))
    if (roofline := roofline_table((model,))) is not None:
        made.append(roofline)
    return made + _single_tables(model)


def _single_tables(model: ModelReport) -> list[Table]:
    made = []
    where = f"{model.name}, threads: {model.latency.threads}"
    if model.kernels is not None:
        made.append(kernel_table(f"Convolutions of {where}", model.kernels))
    if model.cold_start is not None:
        title = f"Process start to first output of {where}"
        made.append(cold_start_table(title, model.cold_start, OWN))
    return made


def _remarks(model: ModelReport) -> list[str]:
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
    """Return a table of models: median latencies, the fastest in bold, and best peer / neocpu."""
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
    header = ("model", *labels, "best peer / neocpu", "predicted", "compile s", "gap")
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
    columns: Columns[tuple[ModelReport, LatencyResult]] = {
        "model": lambda pair: pair[0].name,
        "engine": lambda pair: f"{pair[1].label} {pair[1].version}",
        "p50 ms": lambda pair: ms(pair[1].p50),
        "p90 ms": lambda pair: ms(pair[1].p90),
        "p99 ms": lambda pair: ms(pair[1].p99),
        "spread of rounds": lambda pair: f"{pair[1].spread:.1%}",
        "load s": lambda pair: f"{pair[1].load_seconds:.2f}",
        "peak MB": lambda pair: _peak(pair[1]),
        "error": lambda pair: difference(pair[0].latency, pair[1]),
    }
    pairs = ((model, result) for model in models for result in model.latency.results)
    return Table.of("Percentiles, load time, memory and accuracy", pairs, columns)


def memory_table(models: Sequence[ModelReport], peers: Sequence[str]) -> Table | None:
    """Return the peak memory of each engine, and neocpu's share of the median peer's."""
    if all(model.memory_ratio is None for model in models):
        return None
    rows = tuple(
        (
            model.name,
            *(_peak(model.latency.find(label)) for label in (OWN, *peers)),
            NONE if model.memory_ratio is None else f"{model.memory_ratio:.2f}",
        )
        for model in models
    )
    header = ("model", OWN, *peers, f"{OWN} / median peer")
    notes = ("Of a process that loads one engine and one model and runs it; weights included.",)
    return Table("Peak resident memory in MB", header, rows, notes)


def _peak(result: LatencyResult | None, unknown: str = NONE) -> str:
    return f"{result.peak_rss / 1e6:.0f}" if result is not None and result.peak_rss else unknown


def compile_table(models: Sequence[ModelReport]) -> Table | None:
    """Return what compiling took, beside the bound of six times the model and 1 GB."""
    columns: Columns[tuple[str, Compilation]] = {
        "model": lambda pair: pair[0],
        "model MB": lambda pair: f"{pair[1].model_bytes / 1e6:.1f}",
        "artifact MB": lambda pair: f"{pair[1].artifact_bytes / 1e6:.1f}",
        "seconds": lambda pair: f"{pair[1].seconds:.1f}",
        "peak MB": lambda pair: f"{pair[1].peak_bytes / 1e6:.0f}",
        "of 6 x model + 1 GB": lambda pair: (
            f"{pair[1].peak_bytes / (6 * pair[1].model_bytes + 1e9):.0%}"
        ),
    }
    done = [(model.name, model.compilation) for model in models if model.compilation is not None]
    return Table.of("Compilation", done, columns) if done else None


def prediction_table(models: Sequence[ModelReport]) -> Table | None:
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
    rooflines = [model.roofline for model in models if model.roofline is not None]
    if not rooflines:
        return None
    columns: Columns[Roofline] = {
        "model": lambda one: one.model,
        "measured ms": lambda one: ms(one.seconds),
        "GFLOP": lambda one: f"{one.flops / 1e9:.2f}",
        "GFLOP/s": lambda one: f"{one.flops / one.seconds / 1e9:.0f}",
        "of FMA peak": lambda one: f"{one.fma_share:.0%}",
        "of DRAM speed": lambda one: f"{one.dram_share:.0%}",
        "bound by": lambda one: one.bound,
        "bound ms": lambda one: ms(one.lower_bound),
        "of the bound": lambda one: f"{one.share:.0%}",
    }
    limits = rooflines[0].limits
    notes = (
        f"Measured limits with {plural(limits.threads, 'thread')}: "
        f"{limits.flops / 1e9:.0f} GFLOP/s in float32 multiply-adds, "
        f"{limits.dram / 1e9:.1f} GB/s read from memory.",
        "Operations are those of direct convolution: Winograd's algorithm can exceed its bound.",
        *limits.warnings,
    )
    return Table.of("Roofline", rooflines, columns, notes)


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


def latency_table(title: str, report: LatencyReport, baseline: str) -> Table:
    """Return latencies, and those of other contenders relative to ``baseline``."""
    base = report.find(baseline)

    def ratio(result: LatencyResult) -> str:
        return "" if base is None or result is base else interval(report.ratio(result, base))

    columns: Columns[LatencyResult] = {
        "contender": lambda result: f"{result.label} {result.version}",
        "median ms": lambda result: ms(result.p50),
        "p90 ms": lambda result: ms(result.p90),
        "p99 ms": lambda result: ms(result.p99),
        f"it / {baseline} (95 %)": ratio,
        "peak MB": lambda result: _peak(result, ""),
        "error": lambda result: difference(report, result),
    }
    verdict = () if base is None else _verdict(report, base)
    return Table.of(title, report.results, columns, (*verdict, *report.warnings))


def kernel_table(title: str, report: KernelReport) -> Table:
    columns: Columns[KernelResult] = {
        "convolution": lambda result: str(result.case.workload),
        "times": lambda result: str(result.case.count),
        "µs": lambda result: f"{result.seconds * 1e6:.1f}",
        "GFLOP/s": lambda result: f"{result.gflops:.1f}",
        "of peak": lambda result: f"{result.share:.1%}",
        "scheme": lambda result: result.case.source,
    }
    note = (
        f"FMA peak {report.peak_gflops:.1f} GFLOP/s with {plural(report.threads, 'thread')}; "
        f"mean {report.mean_share:.1%}, worst {report.min_share:.1%} of it."
    )
    return Table.of(title, report.results, columns, (note,))


def difference(report: LatencyReport, result: LatencyResult) -> str:
    """Return the distance of outputs from the reference's, and whether it is too large."""
    if result.label == report.reference:
        return "reference"
    return f"{result.error:.1e}" if result.agrees else f"{result.error:.1e} (wrong)"


def _verdict(report: LatencyReport, base: LatencyResult) -> Sequence[str]:
    best = report.best_peer(base.label)
    if best is None or not base.agrees:
        return ()
    if report.inconclusive:
        return report.inconclusive
    ratio = report.ratio(base, best)
    factor = max(ratio.value, 1 / ratio.value)
    word = "faster" if ratio.value < 1 else "slower"
    return (f"{base.label} is {factor:.2f} times {word} than the fastest peer, {best.label}.",)
