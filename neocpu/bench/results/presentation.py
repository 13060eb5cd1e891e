"""Turn a view's results into a document, and into a page for a browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from neocpu.bench.results.chart import Figure
from neocpu.bench.results.table import Table
from neocpu.foundation.machine.machine_info import MachineInfo
from neocpu.plan.result_pages.parts import Facts, Part, Section, result_page, table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    command: str  # the command line
    machine: MachineInfo
    peers: tuple[str, ...]  # engines that neocpu was compared with
    threads: tuple[int, ...]
    rounds: int
    missing: tuple[str, ...] = ()  # requested engines that are not installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    method: str  # the method of the measurement: Markdown with emphasis, code and paragraphs
    tables: tuple[Table, ...]  # the tables of the terminal and of the page
    results: tuple[Table, ...] = ()  # the tables of the document, if they are not the same
    details: tuple[Table, ...] = ()  # further ones of the document
    parts: tuple[Part, ...] = ()  # the charts of the page
    figures: tuple[Figure, ...] = ()  # the charts that are drawn into files next to the document
    undrawn: str = ""  # the reason that there are no figures, if the view usually has some


def facts(run: Run) -> list[tuple[str, str]]:
    machine = run.machine
    caches = ", ".join(f"{name} {_binary(size)}" for name, size in machine.caches.items())
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    missing = ("Not installed, so not compared", ", ".join(run.missing))
    return [
        ("Date", machine.date),
        ("CPU", f"{machine.cpu}, {machine.cpus} usable"),
        *([("Caches", caches)] if caches else []),
        ("Memory", _binary(machine.memory)),
        ("System", f"{machine.system}, Python {machine.python}"),
        ("Versions", versions),
        ("Threads", ", ".join(map(str, run.threads))),
        *([missing] if run.missing else []),
    ]


def _binary(size: int) -> str:
    """Return bytes as ``32 KiB``, ``1 MiB`` or ``23.4 GiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= scale:
            return f"{size / scale:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size / 1024:g} KiB"


def document(title: str, run: Run, shown: Presentation, charts: Mapping[str, str]) -> str:
    """Return the Markdown document; `charts`: their paths relative to it, by their descriptions."""
    details = ["## Details", *_markdown(shown.details)] if shown.details else []
    parts = [
        f"# {title}",
        "This file was written by the command below; run it again to rewrite it for your machine.",
        f"```\n{run.command}\n```",
        "## Machine and versions",
        "\n".join(f"- {name}: {text}" for name, text in facts(run)),
        "## Method",
        shown.method,
        "## Results",
        *(f"![{words}]({path})" for words, path in charts.items()),
        *_markdown(shown.results or shown.tables),
        *details,
    ]
    return "\n\n".join(parts) + "\n"


def page(title: str, run: Run, shown: Presentation) -> str:
    figures = tuple(table_of(one.title, one.header, one.rows, one.notes) for one in shown.tables)
    where = Facts((("Command", run.command), *facts(run)))
    curves = [Section("Curves", "Curves", shown.parts)] if shown.parts else []
    return result_page(
        title,
        (
            *curves,
            Section("Figures", "Figures", figures, "Choose a heading to sort."),
            Section("Method", "How it was measured", (where,), re.sub(r"[*`]", "", shown.method)),
        ),
    )


def _markdown(tables: tuple[Table, ...]) -> list[str]:
    return [table.markdown().rstrip() for table in tables]
