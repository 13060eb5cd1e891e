"""``neocpu db``: show, check and maintain tuning databases."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from neocpu.cli import options
from neocpu.cli.databases import writable_database
from neocpu.cli.parsing.groups import Group
from neocpu.foundation.console.terminal import Terminal, echo, print_table
from neocpu.foundation.errors import DatabaseError
from neocpu.foundation.files import refuse_overwriting
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import plural, size
from neocpu.frontend.shapes.input_shapes import InputShapes

if TYPE_CHECKING:
    from neocpu.tuning_db.merge import MergedFile
    from neocpu.tuning_db.record import Record, Workload
    from neocpu.tuning_db.record_file import Contents, OnRead, SkippedLine
    from neocpu.tuning_db.selection import PruneReport

PROGRESS_AFTER: Final = 2.0  # seconds after which reading shows its progress
MAX_NOTES: Final = 10

EPILOG = """\b
Examples:
  neocpu db stats
  neocpu db check tuned.jsonl
  neocpu db merge all.jsonl machine1.jsonl machine2.jsonl
  neocpu db prune all.jsonl --dry-run
  neocpu db export --db all.jsonl --model resnet50 --best 20 -o resnet50.jsonl"""


@click.group(cls=Group, epilog=EPILOG)
def command() -> None:
    """Show, check, merge, prune and export tuning databases.

    A compilation reads three layers: the records shipped with neocpu, your own, and the files named
    with --db. Later layers override earlier ones. Other processes may write to a file while these
    commands work on it.
    """


_files: Final = click.argument("files", metavar="[FILE]…", nargs=-1, type=options.PATH)


@command.command(epilog="Example:  neocpu db stats tuned.jsonl")
@_files
@options.common
def stats(terminal: Terminal, files: tuple[Path, ...]) -> None:
    """Count records by CPU and template in FILEs, by default the shipped ones and your own."""
    from neocpu.schedules.registry import template_version
    from neocpu.tuning_db.selection import file_statistics

    counts = []
    for layer, contents in _read_each(terminal, files):
        counted = file_statistics(contents, template_version)
        counts.append(
            {
                "layer": layer,
                "path": str(contents.path),
                "bytes": counted.size,
                "records": counted.records,
                "superseded": counted.superseded,
                "skipped": counted.skipped,
                "groups": [asdict(group) for group in counted.groups],
            }
        )
    terminal.result({"files": counts}, lambda: _show_stats(counts))


def _show_stats(files: Sequence[Mapping[str, Any]]) -> None:
    counts = ("records", "superseded", "skipped")
    print_table(
        ("layer", "size", *counts, "file"),
        [
            (
                file["layer"],
                size(file["bytes"]),
                *(str(file[name]) for name in counts),
                file["path"],
            )
            for file in files
        ],
        right=("size", *counts),
    )
    columns = ("threads", "workloads", "records", "failed", "stale")
    rows = [
        (file["layer"], group["mcpu"], group["template"], *(str(group[name]) for name in columns))
        for file in files
        for group in file["groups"]
    ]
    if rows:
        echo()
        print_table(("layer", "CPU", "template", *columns), rows, right=columns)


@command.command(epilog="Example:  neocpu db check tuned.jsonl")
@_files
@options.common
def check(terminal: Terminal, files: tuple[Path, ...]) -> None:
    """List the unusable lines of FILEs, by default of the shipped ones and your own.

    The exit code is 7 if there is one.
    """
    checked = [_checked(contents) for _, contents in _read_each(terminal, files)]
    terminal.result({"files": checked}, lambda: _show_check(checked))
    bad = sum(len(file["bad"]) for file in checked)
    if bad:
        raise DatabaseError(
            f"{plural(bad, 'bad line')} in {plural(sum(bool(f['bad']) for f in checked), 'file')}; "
            "'neocpu db prune FILE' drops them, except those of other versions of neocpu"
        )


def _checked(contents: Contents) -> JsonObject:
    if contents.is_foreign:  # listing its lines is useless, and prune refuses it
        raise DatabaseError(f"{contents.path} is no tuning database; name another file")
    bad = [(entry.line, entry.reason) for entry in contents.skipped]
    bad += [
        (entry.line, f"{entry.record.scheme} cannot compute {entry.record.workload}")
        for entry in contents.lines
        if not _fits(entry.record)
    ]
    return {
        "path": str(contents.path),
        "records": len(contents.lines),
        "bad": [{"line": line, "reason": reason} for line, reason in sorted(bad)],
    }


def _fits(record: Record) -> bool:
    from neocpu.schedules import registry
    from neocpu.tuning_db.nearest import cpu_target

    return registry.can_compute(record.workload, record.scheme, cpu_target(record.target))


def _show_check(files: Sequence[Mapping[str, Any]]) -> None:
    for file in files:
        for bad in file["bad"]:
            echo(f"{file['path']}:{bad['line']}: {bad['reason']}")
        if not file["bad"]:
            echo(f"{file['path']}: {plural(file['records'], 'record')}, all good")


@command.command(epilog="Example:  neocpu db merge all.jsonl machine1.jsonl machine2.jsonl")
@click.argument("destination", metavar="OUT", type=options.PATH)
@click.argument("sources", metavar="IN…", nargs=-1, required=True, type=options.PATH)
@options.common
def merge(terminal: Terminal, destination: Path, sources: tuple[Path, ...]) -> None:
    """Add the new and better records of the databases IN to OUT.

    OUT is created if it does not exist. Of two records of one scheme, a failure wins over a time,
    then more repeats win over fewer, then the later record wins. After an error or Ctrl-C, nothing
    is added.
    """
    from neocpu.tuning_db.merge import merge as merge_files

    with _naming("name another file"), _reading(terminal) as on_read:
        merged = merge_files(destination, sources, on_read=on_read)
    _note_skipped(terminal, [skipped for file in merged for skipped in file.skipped])
    document = {"destination": str(destination), "files": [_merged(file) for file in merged]}
    terminal.result(document, lambda: _show_merged(document, quiet=terminal.quiet))


def _merged(file: MergedFile) -> JsonObject:
    return {
        "path": str(file.path),
        "records": file.records,
        "added": file.added,
        "improved": file.improved,
        "skipped": len(file.skipped),
    }


def _show_merged(document: Mapping[str, Any], *, quiet: bool) -> None:
    for file in () if quiet else document["files"]:
        left = file["records"] - file["added"] - file["improved"]
        skipped = f", {plural(file['skipped'], 'line')} skipped" if file["skipped"] else ""
        echo(
            f"{file['path']}: took {file['added']} new and {file['improved']} better of "
            f"{plural(file['records'], 'record')}, left {left} known{skipped}"
        )
    echo(f"merged into {document['destination']}")


@command.command(epilog="Example:  neocpu db prune tuned.jsonl --keep-best 50 --dry-run")
@click.argument("database", metavar="[FILE]", required=False, type=options.PATH)
@options.count(
    "--keep-best",
    help="Also drop all but the N fastest schemes of each workload, CPU and thread count, and the "
    "fastest between each pair of layouts. Dropped schemes count as not measured.",
)
@click.option("--failed", is_flag=True, help="Also drop failures, which are then measured again.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be dropped.")
@options.common
def prune(
    terminal: Terminal, database: Path | None, keep_best: int | None, failed: bool, dry_run: bool
) -> None:
    """Drop the useless lines of FILE, by default your own database.

    These are damaged lines, lines that a later one supersedes, lines of earlier versions of a
    template, and schemes that cannot compute their workload. Lines of later versions of neocpu
    stay. The shipped records are never changed.
    """
    from neocpu.schedules.registry import template_version
    from neocpu.tuning_db.selection import PruneRules
    from neocpu.tuning_db.selection import prune as prune_file

    path = writable_database(() if database is None else (database,))
    rules = PruneRules(template_version, _fits, keep_best, failed)
    with _naming("name another file"), _reading(terminal) as on_read:
        pruned = prune_file(path, rules, dry_run=dry_run, on_read=on_read)
    document = {**asdict(pruned), "path": str(path), "dry_run": dry_run}
    terminal.result(document, lambda: _show_pruned(pruned, dry_run))


def _show_pruned(report: PruneReport, dry_run: bool) -> None:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(report.dropped.items()))
    verbs = ("would drop", "would keep") if dry_run else ("dropped", "kept")
    foreign = (
        f" and {plural(report.foreign, 'line')} of other versions of neocpu"
        if report.foreign
        else ""
    )
    echo(
        f"{report.path}: {verbs[0]} {reasons or 'nothing'}; {verbs[1]} "
        f"{plural(report.kept, 'record')}{foreign}; {size(report.bytes_before)} -> "
        f"{size(report.bytes_after)}"
    )


@command.command(
    epilog="Example:  neocpu db export --cpu znver4 --threads 2 --best 20 > mine.jsonl"
)
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE",
    help="The file to write; by default the standard output.",
)
@options.databases
@click.option(
    "--cpu", "cpus", multiple=True, metavar="NAME", help="LLVM's name of a CPU. Repeatable."
)
@options.count("--threads", multiple=True, help="A thread count. Repeatable.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="Only the workloads of this model. Repeatable.",
)
@options.shape
@options.batch
@options.count(
    "--best",
    help="Only the N fastest schemes of each workload, CPU and thread count, and the fastest "
    "between each pair of layouts; no failures.",
)
@options.common
def export(
    terminal: Terminal,
    output: Path | None,
    databases: tuple[Path, ...],
    cpus: tuple[str, ...],
    threads: tuple[int, ...],
    models: tuple[str, ...],
    shapes: Mapping[str, tuple[int, ...]],
    batch: int | None,
    best: int | None,
) -> None:
    """Write the records of all layers, without those that others override.

    By default these are the records of all CPUs, thread counts and workloads. They are sorted, so
    that equal records make equal files. Files that are read are never overwritten.
    """
    from neocpu.schedules.registry import template_version
    from neocpu.tuning_db.record_file import locked, replace_contents
    from neocpu.tuning_db.selection import Selection, select
    from neocpu.tuning_db.store import Store

    paths = [path for _, path in _layers(databases)]
    if output is not None:
        refuse_overwriting(output, "-o", (*paths, *models))
    with _reading(terminal) as on_read:
        store = Store.open(paths, None, template_version, on_read)
    _note_skipped(terminal, store.skipped)
    workloads = _workloads(models, InputShapes.parse(shapes, batch), store) if models else None
    records = select(store, Selection(cpus, threads, workloads, best))
    if output is None:
        lines = {"records": [record.to_json() for record in records]}
        terminal.result(lines, lambda: _print_records(records))
        return
    data = "".join(record.to_line() for record in records).encode()
    with _naming("choose another -o"), locked(output) as real:
        replace_contents(real, data)
    document = {"path": str(output), "records": len(records), "bytes": len(data)}
    summary = f"{output}: {plural(len(records), 'record')}, {size(len(data))}"
    terminal.result(document, lambda: echo(summary))


def _note_skipped(terminal: Terminal, skipped: Sequence[SkippedLine]) -> None:
    """Name the first skipped lines, and not all of them: the file may be a foreign one."""
    for line in skipped[:MAX_NOTES]:
        terminal.note(str(line))
    if more := len(skipped[MAX_NOTES:]):
        terminal.note(f"{plural(more, 'more line')} skipped; 'neocpu db check FILE' names them")


def _print_records(records: Sequence[Record]) -> None:
    for record in records:
        echo(record.to_line().removesuffix("\n"))


def _workloads(
    models: Sequence[str], shapes: InputShapes, records: Iterable[Record]
) -> frozenset[Workload]:
    from neocpu.compilation.read_model import workloads
    from neocpu.tuning_db.nearest import cpu_target

    # The layouts of a network's feature maps depend on the width of vectors.
    targets = {cpu.vector_bytes: cpu for cpu in (cpu_target(record.target) for record in records)}
    return frozenset(
        workload for model in models for workload in workloads(model, targets.values(), shapes)
    )


def _layers(databases: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    from neocpu.tuning_db.store import default_database, shipped_databases

    yield from (("shipped", path) for path in shipped_databases())
    user = default_database()
    if os.path.exists(user):
        yield "user", user
    yield from (("--db", path) for path in databases)


def _read_each(terminal: Terminal, files: Sequence[Path]) -> list[tuple[str, Contents]]:
    """Read only these files; without any, those that a compilation reads by default."""
    from neocpu.tuning_db.record_file import read_records

    chosen = [("named", path) for path in files] or _layers(())
    with _naming("name another file"), _reading(terminal) as on_read:
        return [(layer, read_records(path, on_read)) for layer, path in chosen]


@contextmanager
def _naming(other: str) -> Iterator[None]:
    """Make errors of databases give this command's own advice on naming another file."""
    from neocpu.tuning_db.record_file import OTHER_FILE

    try:
        yield
    except DatabaseError as error:
        raise DatabaseError(str(error).replace(OTHER_FILE, other)) from error


@contextmanager
def _reading(terminal: Terminal) -> Iterator[OnRead]:
    """Show the progress of reading files, once it takes longer than `PROGRESS_AFTER`."""
    from neocpu.foundation.progress import Progress

    start = time.monotonic()
    with terminal.progress() as report:

        def on_read(path: Path, done: int, total: int) -> None:
            if time.monotonic() - start > PROGRESS_AFTER:
                report(Progress("read", done, total, str(path)))

        yield on_read
