"""docs/onnx-backend.md: the result of each test."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import onnx

from tests.onnx_backend.categories import CATEGORIES, categories
from tests.onnx_backend.suite import Result

DOCUMENT = Path(__file__).parents[2] / "docs/onnx-backend.md"

_HEAD = """# ONNX's own tests

`neocpu.onnx_backend` is ONNX's standard interface to backends (`onnx.backend.base`), and this is
what becomes of ONNX's backend test suite, that of onnx {version}, run through it.
`python -m tests.onnx_backend` runs it, each test in a child with a time limit, and writes this
page. A test passes if every output has the shape and the element type that ONNX gives it, and its
values within the suite's own tolerance. One that does not pass is refused: an error in one line
names the operator and the cause. Where ONNX's values are not what its standard says, it is listed.

Inputs that decide shapes (the target of a Reshape, the axes of a ReduceSum) are constants of a
plan: the backend takes their values from a run, and makes a plan for each distinct value. A model's
inputs and outputs are tensors: sequences and optional values are refused there, and so are tensors
of 8-bit floats and of integers of 2 or 4 bits.

| tests of | all | passed | refused | listed | wrong or crashed | passed, of all |
|---|---|---|---|---|---|---|
"""


def document(results: Mapping[str, Result]) -> str:
    """Return the page."""
    of = categories()
    groups: dict[str, dict[str, Result]] = {category: {} for category in CATEGORIES}
    for name, result in sorted(results.items()):
        groups[of[name]][name] = result
    text = _HEAD.format(version=onnx.__version__)
    for category, members in groups.items():
        text += _row(category, members)
    text += _row("**all**", results)
    text += "\n## Not passed\n\nBy reason; each name without its first word, test.\n"
    for category, members in groups.items():
        if failures := _failures(members):
            text += f"\n### {category}\n\n{failures}"
    return text


def not_passed_in(text: str) -> set[str]:
    """Return the tests that a page names: those that do not pass."""
    return {f"test_{name}" for name in re.findall(r"`(\w+)`", text.partition("## Not passed")[2])}


def _row(name: str, members: Mapping[str, Result]) -> str:
    count = Counter(result.ending for result in members.values())
    share = f"{100 * count['passed'] / max(1, len(members)):.1f} %"
    bad = count["wrong"] + count["crashed"]
    numbers = (len(members), count["passed"], count["refused"], count["listed"], bad, share)
    return f"| {name} | {' | '.join(map(str, numbers))} |\n"


def _failures(members: Mapping[str, Result]) -> str:
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, result in members.items():
        if result.ending != "passed":
            reasons[_reason(result)].append(f"`{name.removeprefix('test_')}`")
    lines = []
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"- {reason}: {', '.join(names)}\n")
    return "".join(lines)


def _reason(result: Result) -> str:
    """Return a reason without the names of tensors and nodes."""
    text = re.sub(r", first '[^']*'", "", result.reason)
    text = re.sub(r"'[^']*'", "…", text)
    text = text if len(text) <= 200 else f"{text[:199]}…"
    return text if result.ending == "refused" else f"**{result.ending}**: {text}"
