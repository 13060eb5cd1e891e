"""`python -m tests.element_types`: run every operator on every type, write docs/element-types.md.

With words, only operators whose names have one of them are run, and nothing is written.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from tests.element_types.cells import TYPES, operators, run
from tests.onnx_backend.suite import Result

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "element-types.md"
MARKS: Final = {"passed": "yes", "refused": "no", "listed": "runs"}
_TEXT: Final = """# Element types of operators

`python -m tests.element_types` runs each of ONNX's operators, as one of its own tests has it, on
every element type that ONNX allows there, and writes this page. **yes**: its results are those of
ONNX Runtime or, where that has no kernel, of the reference. **runs**: nothing else computes it.
**no**: it is refused, for the reason below the table. **-**: ONNX has no such operator. An
operator whose inputs have several types has a row for each, by ONNX's name of it. Numbers of 4
bits, and of floating point in 8, are converted, and nothing computes with them.
"""


def document(results: Mapping[tuple[str, str], Result]) -> str:
    """Return the page."""
    lines = [_TEXT, f"| operator | {' | '.join(TYPES)} |", f"|---|{'---|' * len(TYPES)}"]
    reasons: dict[str, list[str]] = {}
    for name in operators():
        marks = []
        for kind in TYPES:
            result = results.get((name, kind))
            marks.append("-" if result is None else MARKS[result.ending])
            if result is not None and result.ending == "refused":
                reasons.setdefault(result.reason, []).append(f"{name} of {kind}")
        lines.append(f"| {name} | {' | '.join(marks)} |")
    counts = Counter(result.ending for result in results.values())
    lines += [
        "",
        f"Of {len(results)}, {counts['passed']} are right, {counts['listed']} run, and "
        f"{counts['refused']} are refused:",
        "",
        *sorted(f"- {', '.join(cells)}: {reason}" for reason, cells in reasons.items()),
    ]
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Return 1 if anything is wrong, 0 otherwise."""
    chosen = [
        (name, kind)
        for name, each in operators().items()
        if not words or any(word in name for word in words)
        for kind in each.allowed
    ]
    results = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        found = workers.map(run, *zip(*chosen, strict=True), chunksize=8)
        for number, (cell, result) in enumerate(zip(chosen, found, strict=True)):
            if sys.stderr.isatty():
                print(f"\r{number} of {len(chosen)}", end="", file=sys.stderr, flush=True)
            results[cell] = result
            if words or result.ending in ("wrong", "crashed"):
                print(*cell, result.ending, result.reason, flush=True)
    counts = Counter(result.ending for result in results.values())
    print(dict(counts))
    bad = counts["wrong"] + counts["crashed"]
    if not words and not bad:
        DOCUMENT.write_text(document(results))
        print(f"wrote {DOCUMENT}")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
