"""The plan of an artifact as a page, which ``neocpu explain --html`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neocpu.foundation.console.terminal import Terminal
from neocpu.foundation.errors import UsageError
from neocpu.foundation.json_codec import JsonObject
from neocpu.plan.text.page_file import check_page_file, write_page_file
from neocpu.plan.text.plan_text import plan_fields

if TYPE_CHECKING:
    from neocpu.bench.limits.roofline import Limits
    from neocpu.runtime.header import ArtifactHeader


def write_page(
    terminal: Terminal,
    artifact: Path,
    header: ArtifactHeader,
    others: Sequence[tuple[str, str]],
    destination: Path,
    *,
    variant: str | None = None,
    profile: bool = False,
    measured: Path | None = None,
    trace: Path | None = None,
) -> JsonObject:
    """Write an artifact's page, and say so; `others`: fields about a set of shapes.

    Returns the profile and the trace as JSON.
    Raises UsageError: the page cannot be written, or `measured` or `trace` is of another artifact.
    Raises ArtifactError: the artifact does not run.
    """
    from neocpu.plan.pages.hot_loops import hot_loops
    from neocpu.plan.pages.page import page_data, page_text
    from neocpu.plan.pages.run_trace import read_trace
    from neocpu.runtime.artifact import ArtifactFile

    check_page_file(destination, (artifact, measured, trace))
    file = ArtifactFile(artifact)
    part = file.loadable or file.variants[0] if variant is None else file.variant(variant)
    timeline = None if trace is None else read_trace(trace, artifact, header, part.header)
    times, where = None, list[tuple[str, str]]()
    if measured is not None:
        asked = " ".join([str(artifact), *_shape_options(part.header, header)])
        times, where = _saved_profile(terminal, measured, asked, header)
    elif profile:
        times = measured_profile(terminal, artifact, header)
    fields = [*plan_fields(header, others), *where]
    data = page_data(header, fields, times, hot_loops(artifact, part), timeline)
    write_page_file(terminal, destination, page_text(data))
    return {
        **({} if times is None else {"profile": times}),
        **({} if timeline is None else {"trace": timeline.to_json()}),
    }


def _shape_options(every: ArtifactHeader, header: ArtifactHeader) -> list[str]:
    if header.inputs == every.inputs:
        return []
    shapes = ((spec.name, ",".join(map(str, spec.shape))) for spec in header.inputs)
    return [f"--shape {name}:{shape}" for name, shape in shapes]


def _saved_profile(
    terminal: Terminal, path: Path, artifact: str, header: ArtifactHeader
) -> tuple[Mapping[str, Any], list[tuple[str, str]]]:
    """Return a profile as JSON, and a field on where it was measured; note another machine."""
    from neocpu.foundation.machine.machine_info import describe
    from neocpu.plan.profiling.saved_profile import read_profile

    found = read_profile(path, artifact, header)
    if found.cpu != (here := describe().cpu):
        terminal.note(f"{path} was measured on another machine: {found.cpu}; this is {here}")
    return found.profile.to_json(), [("measured", f"on {found.cpu}, {found.date}")]


def measured_profile(
    terminal: Terminal, artifact: Path, header: ArtifactHeader, limits: Limits | None = None
) -> Mapping[str, Any]:
    """Run an artifact, and return the time of each operator as JSON.

    Raises UsageError, ArtifactError: this host runs another part than the header's, or none.
    """
    from neocpu.bench.limits.roofline import measure_limits
    from neocpu.plan.profiling.operator_times import measure_profile
    from neocpu.runtime.artifact import read_header
    from neocpu.runtime.module import load

    loaded = read_header(artifact)
    same = (one.inputs == header.inputs and one.calls == header.calls for one in loaded.each)
    number = next((number for number, one in enumerate(same) if one), None)
    if number is None or loaded.target != header.target:
        raise UsageError(
            f"--profile runs what this host loads of {artifact}, which is for {loaded.target}: "
            "leave --variant out"
        )
    load(artifact, header.threads).close()  # fails at once if this host cannot run it
    with terminal.progress() as on_progress:
        limits = limits or measure_limits(header.threads, on_progress)
        found = measure_profile(
            artifact, header.plan, limits, on_progress=on_progress, number=number
        )
    return found.to_json()
