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
from neocpu.plan.plan import Plan
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules.vocabulary.scheme import SCHEMES

WORDS: Final[Mapping[str, str]] = {
    "ic_bn": "Channels of the input that lie side by side in memory; 1 is plain NCHW.",
    "oc_bn": "Output channels that lie side by side in memory, computed as vectors.",
    "reg_n": "Output columns (of Winograd: tiles) whose sums stay in registers at once.",
    "reg_oh": "Output rows whose sums stay in registers at once.",
    "reg_oc": "Output channels whose sums stay in registers at once.",
    "unroll_ker": "Whether the loops over the kernel's window are written out.",
    "out_bn": "Channels side by side in the output, where the stores transform its layout.",
    "sum_chunks": "Blocks of input channels that are summed before they join the output's sum: it "
    "rounds less.",
    "tile": "Output pixels along the side of a Winograd tile: larger ones multiply less, and round "
    "more.",
    "strip": "Register tiles, along the image, that make one task of a thread.",
    "oc_split": "Whether threads share the output channels of a strip.",
    "on_the_fly": "Whether weights are stored untransformed, and transformed in every run.",
    "edge_tiles": "Whether smaller tiles compute the rest at the image's edges.",
    "ic_block": "Input channels of one pass, whose weights stay in the first-level cache.",
    "ic_half": "Input channels of each of two halves: seven products of halves replace eight.",
    "dot": "Input channels whose weights lie side by side, as the instruction takes them.",
    "int16_groups": "Groups of 8-bit products that are added up in 16 bits before they join a sum.",
}
"""Meanings of parameters by their names, without those of operators that packages add."""

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
    name: str  # name of the model
    facts: Sequence[tuple[str, str]]  # which ``neocpu explain`` prints above its table
    plan: Plan  # the plan of the artifact
    graph: ProgramGraph
    arena_bytes: int
    arena: tuple[Block, ...]
    profile: Mapping[str, Any] | None = None  # a `neocpu.plan.profiling` report, by call
    loops: Mapping[str, HotLoop] = field(default_factory=dict)  # by kernel, if disassembled
    trace: RunTrace | None = None  # a run in time; None if there is no timeline

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "facts": [list(fact) for fact in self.facts],
            "plan": self.plan.to_json(),
            **self.graph.to_json(),
            "arena": {"bytes": self.arena_bytes, "blocks": value_to_json(self.arena)},
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

    Raises ArithmeticError, LookupError, ValueError: its plan, which anybody wrote, is no use.
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
    """Return the page as HTML, which loads nothing. Raises ValueError: a number is not finite."""
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
