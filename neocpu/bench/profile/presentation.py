"""Profiles as tables and bars: one network by class and by kernel, several by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from neocpu.bench.profile.network_profiles import (
    ModelProfile,
    ProductKernel,
    average_share,
    total_share,
)
from neocpu.bench.results.presentation import Presentation
from neocpu.bench.results.table import Columns, Table, ms
from neocpu.foundation.units import plural
from neocpu.plan.profiling.operator_times import (
    CONSPICUOUS,
    CONVOLUTION,
    FAR_BELOW,
    NOTICEABLE,
    ProfileReport,
    Row,
)
from neocpu.plan.result_pages.parts import Bars

LISTED: Final = 0.005  # the share of a run above which a table says what a kernel lacks
MARK: Final = " *"  # the mark of a kernel that is far below its limit

METHOD: Final = (
    "Every operator is timed inside the running network, in a process of its own: caches are as "
    "the operator before left them. What the machine allows is measured first: multiply-adds, and "
    "reads of memory and of the last-level cache."
)
BY_DIRECT: Final = (
    "Operations are those of direct convolution and feature maps are taken to come from the "
    "last-level cache: Winograd's algorithm and maps still in L2 can exceed the limit."
)


def present(models: Sequence[ModelProfile]) -> Presentation:
    each = tuple(table for one in models for table in _of_model(one))
    return Presentation(
        method=METHOD,
        tables=(profile_summary(models), *each) if len(models) > 1 else each,
        parts=tuple(map(_bars, models)),
    )


def _bars(profile: ModelProfile) -> Bars:
    rows = sorted(profile.profile.classes, key=lambda row: -row.seconds)
    bars = tuple((f"{row.label}, {row.count}", row.seconds * 1e6) for row in rows)
    return Bars(f"{profile.name}, where a run's time goes", "us", bars)


def profile_tables(where: str, report: ProfileReport) -> list[Table]:
    """Return classes of operators, and kernels; `where`: the model and the threads, for titles."""
    marked = {row.label for row in report.conspicuous}
    bold = {(i, 5) for i, row in enumerate(report.kernels) if row.label in marked}
    numbers: Columns[Row] = {
        "times": lambda row: str(row.count),
        "µs": lambda row: f"{row.seconds * 1e6:.1f}",
        "of the run": lambda row: f"{report.share(row):.1%}",
        "GFLOP/s": lambda row: _rate(row, row.flops, 0),
        "GB/s": lambda row: _rate(row, row.bytes, 1),
        "limit": lambda row: row.bound,
        "of the limit": lambda row: _of_limit(report, row),
        "predicted µs": lambda row: f"{row.predicted * 1e6:.1f}" if row.predicted else "",
    }
    kernel: Columns[Row] = {
        "kernel": lambda row: row.label,
        "class": lambda row: row.kind,
        "computes": lambda row: row.work,
    }
    notes = (conspicuous_note(report), *_far_below_note(report), *_lack_notes(report))
    kernels = Table.of(f"Kernels of {where}", report.kernels, {**kernel, **numbers}, notes)
    label: Columns[Row] = {"class": lambda row: row.label, **numbers}
    return [
        Table.of(f"Profile of {where}", report.classes, label, _notes(report)),
        replace(kernels, bold=frozenset(bold)),
    ]


def _rate(row: Row, amount: int, digits: int) -> str:
    """Return an amount per second in billions; empty if it is none, or a branch was not taken."""
    return f"{amount / row.seconds / 1e9:.{digits}f}" if amount and row.seconds > 0 else ""


def _of_limit(report: ProfileReport, row: Row) -> str:
    mark = MARK if row in report.far_below else ""
    return f"{row.share_of_bound:.0%}{mark}" if row.least and row.seconds > 0 else ""


def _notes(report: ProfileReport) -> tuple[str, ...]:
    limits, cache = report.limits, report.limits.cache_read
    cost = report.instrumented / report.seconds - 1
    return (
        f"A run takes {ms(report.seconds)} ms, its operators {ms(report.total)} ms in sum; timing "
        f"them makes a run {cost:.1%} longer.",
        f"Limits with {plural(limits.threads, 'thread')}: {limits.flops / 1e9:.0f} GFLOP/s, "
        f"{limits.dram / 1e9:.1f} GB/s from memory, "
        + (f"{cache / 1e9:.1f} GB/s" if cache else "unknown")
        + " from the last-level cache.",
        BY_DIRECT,
        *limits.warnings,
    )


def conspicuous_note(report: ProfileReport) -> str:
    """Return a note on other kernels than convolutions and dense layers that take long."""
    beyond = f"more than {CONSPICUOUS:.0%} of the run"
    named = ", ".join(
        f"{row.label} ({report.share(row):.1%}, limit: {row.bound}, {row.share_of_bound:.0%} of it)"
        for row in report.conspicuous
    )
    if not named:
        return f"Besides convolutions and dense layers no kernel takes {beyond}."
    return f"Besides convolutions and dense layers these take {beyond}: {named}."


def _far_below_note(report: ProfileReport) -> tuple[str, ...]:
    if not (found := report.far_below):
        return ()
    share = sum(report.share(row) for row in found)
    return (
        f"{MARK.strip()} {plural(len(found), 'kernel')} above {NOTICEABLE:.0%} of the run below "
        f"{FAR_BELOW:.0%} of the limit, {share:.1%} of the run together: their code is not what it "
        "should be, unless they wait for one another or compute what no limit counts, such as "
        "exponentials. What neocpu explain says of them may tell why.",
    )


def _lack_notes(report: ProfileReport) -> tuple[str, ...]:
    return tuple(
        f"{row.label} is not as it should be: {row.lacks}."
        for row in report.kernels
        if row.lacks and row.seconds > LISTED * report.total
    )


def _of_model(model: ModelProfile) -> list[Table]:
    where = f"{model.name}, threads: {model.profile.threads}"
    found = profile_tables(where, model.profile)
    return [*found, kernel_table(where, model.kernels)] if model.kernels else found


def kernel_table(where: str, kernels: Sequence[ProductKernel]) -> Table:
    columns: Columns[ProductKernel] = {
        "computes": lambda each: each.work,
        "instructions": lambda each: each.sequence,
        "times": lambda each: str(each.count),
        "µs": lambda each: f"{each.seconds * 1e6:.1f}",
        "GMAC/s": lambda each: f"{each.macs / each.seconds / 1e9:.1f}",
        "peak": lambda each: f"{each.peak / 1e9:.1f}",
        "of the peak": lambda each: f"{each.share:.0%}",
    }
    note = (
        f"On average over the shapes {average_share(kernels):.0%} of the peak are reached, in "
        f"all of their time {total_share(kernels):.0%}. The peak is the best of the same "
        "instructions on register tiles whose operands are in the first-level cache; a "
        "layer's time, of its fastest run, has all else that its kernel does."
    )
    return Table.of(f"Layers in 8-bit integers or in tiles, of {where}", kernels, columns, (note,))


def profile_summary(models: Sequence[ModelProfile]) -> Table:
    profiles = [(model.name, model.profile) for model in models]
    found = {row.label for _, profile in profiles for row in profile.classes}
    kinds = sorted(found, key=lambda kind: (not kind.startswith(CONVOLUTION), kind))
    rows = []
    for name, profile in profiles:
        shares = {row.label: f"{profile.share(row):.1%}" for row in profile.classes}
        least = sum(row.least for row in profile.classes) / profile.total
        marked = ", ".join(f"{one.label} {profile.share(one):.1%}" for one in profile.conspicuous)
        cells = (shares.get(kind, "") for kind in kinds)
        rows.append((name, ms(profile.total), *cells, f"{least:.0%}", marked))
    header = ("model", "operators ms", *kinds, "of the limits", f"others above {CONSPICUOUS:.0%}")
    return Table("Profile: shares of a run", header, tuple(rows), (BY_DIRECT,))
