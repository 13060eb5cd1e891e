"""``python -m tests.neocpu.graph.rules.other_attributes [DRAWS]``: rules and all other attributes.

Each draw states a default attribute of a rule's example, or changes one. The compiled model must
agree with ONNX Runtime, or be refused in one line.
"""

from __future__ import annotations

import sys
from collections import Counter
from random import Random

import onnx

from tests.fuzz.case import Case, Outcome
from tests.fuzz.choices import Choices
from tests.fuzz.mutate import add_attribute, change_attribute
from tests.fuzz.run_case import run_case
from tests.neocpu.graph.rules.cheaper_graphs import CHEAPER
from tests.neocpu.graph.rules.planned_graphs import PLANNED, PLANNED_CONSTANTS
from tests.neocpu.graph.rules.small_graphs import GONE, LESS, X, small_model

GRAPHS = {
    name: nodes for table in (GONE, LESS, CHEAPER, PLANNED) for name, (nodes, *_) in table.items()
}
"""Nodes from ``a`` to ``b``, by name."""


def drawn(name: str, number: int) -> Case:
    """Return the model of an example with one or two attributes that it does not have."""
    rng = Choices(Random(f"{name} {number}"))
    model = onnx.ModelProto()
    model.CopyFrom(small_model(GRAPHS[name], PLANNED_CONSTANTS))
    for _ in range(1 + rng.chance(0.3)):
        (add_attribute if rng.chance(0.6) else change_attribute)(rng, model)
    return Case(model, {"x": X}, name)


def outcome(name: str, number: int) -> Outcome:
    """Return the outcome of a draw."""
    return run_case(drawn(name, number), lambda stage: None)


def main(draws: int = 10) -> int:
    """Run some draws of each, and print those that fail; return 1 if any does."""
    kinds: Counter[str] = Counter()
    failures = 0
    for name in GRAPHS:
        for number in range(draws):
            result = outcome(name, number)
            kinds[result.kind] += 1
            failures += result.failed
            if result.failed:
                print(f"{name} {number}: {result.kind}: {result.detail}", flush=True)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    print(f"{len(GRAPHS)} examples, {draws} draws of each: {told}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
