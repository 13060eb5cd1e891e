"""The page of an artifact: its data as JSON and the scripts that draw them, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from neocpu.foundation.json_codec import JsonObject, value_to_json
from neocpu.plan.pages.arena_picture import Block, arena_blocks
from neocpu.plan.pages.frame import ASSETS, SHARED, asset, framed
from neocpu.plan.pages.hot_loops import INSTALL, HotLoop
from neocpu.plan.pages.program_graph import ProgramGraph, program_graph
from neocpu.plan.pages.run_trace import RunTrace
from neocpu.plan.pages.scheme_words import WORDS
from neocpu.plan.plan import Plan
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules.vocabulary.scheme import SCHEMES

SCRIPTS: Final = (
    "report",
    "picked",
    "alternatives",
    "hot_loop",
    "details",
    "graph",
    "time",
    "memory",
    "pages",
    "search",
    "roofline",
    "trace",
    "main",
)
"""Scripts of this page alone, each after those that it uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageData:
    """The contents of an artifact's page.

    Attributes
    ----------
    name : str
        Name of the model.
    facts : sequence of pair of str
        Names and values that ``neocpu explain`` prints above its table.
    plan : Plan
        The plan of the artifact.
    graph : ProgramGraph
    arena_bytes : int
    arena : tuple of Block
    profile : mapping or None
        The JSON form of a `neocpu.plan.profiling` report, with an entry for each node that is a
        call, in order, and one for the time between the calls. None if nothing was measured.
    loops : mapping of str to HotLoop
        Hot loops by kernel; empty if no tool disassembles them.
    trace : RunTrace or None
        A run in time; None if there is no timeline.
    """

    name: str
    facts: Sequence[tuple[str, str]]
    plan: Plan
    graph: ProgramGraph
    arena_bytes: int
    arena: tuple[Block, ...]
    profile: Mapping[str, Any] | None = None
    loops: Mapping[str, HotLoop] = field(default_factory=dict)
    trace: RunTrace | None = None

    def to_json(self) -> JsonObject:
        """Return the JSON form, which the page carries."""
        return {
            "name": self.name,
            "facts": [list(fact) for fact in self.facts],
            "plan": self.plan.to_json(),
            **self.graph.to_json(),
            "arena": {
                "bytes": self.arena_bytes,
                "blocks": value_to_json(self.arena),
            },
            "profile": self.profile,
            "loops": value_to_json(self.loops),
            "trace": value_to_json(self.trace),
            "install": INSTALL,
            "words": dict(WORDS),
            "templates": {name: each.words for name, each in SCHEMES.items() if each.words},
        }


def page_data(
    header: ArtifactHeader,
    facts: Sequence[tuple[str, str]],
    profile: Mapping[str, Any] | None = None,
    loops: Mapping[str, HotLoop] | None = None,
    trace: RunTrace | None = None,
) -> PageData:
    """Return the contents of the page of an artifact, or of one signature of a set.

    Raises
    ------
    ArithmeticError, LookupError, ValueError
        Its plan cannot be shown: anybody may have written it.
    """
    return PageData(
        name=header.name,
        facts=facts,
        plan=header.plan,
        graph=program_graph(header),
        arena_bytes=header.arena_bytes,
        arena=arena_blocks(header),
        profile=profile,
        loops=loops or {},
        trace=trace,
    )


def page_text(data: PageData) -> str:
    """Return the page as HTML, which loads nothing.

    Raises
    ------
    ValueError
        A number is infinite or NaN, which no browser reads.
    """
    vendor = ASSETS / "vendor"
    return framed(
        ASSETS / "page.html",
        data.name,
        data.to_json(),
        (*SHARED, *(ASSETS / f"{name}.js" for name in SCRIPTS)),
        ("dagre", "uPlot"),
        style=asset(vendor / "uPlot.min.css") + asset(ASSETS / "page.css"),
        layouter=asset(vendor / "dagre.min.js"),
        plots=asset(vendor / "uPlot.iife.min.js"),
        layouts=asset(ASSETS / "layout_worker.js"),
    )
