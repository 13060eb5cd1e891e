"""One case: a random graph, or a model that was changed."""

from __future__ import annotations

from tests.fuzz.case import Case
from tests.fuzz.choices import Choices
from tests.fuzz.corpus import real_case
from tests.fuzz.generate import generate
from tests.fuzz.mutate import mutate


def make_case(rng: Choices) -> Case:
    """Return a random graph, a mutated one, or a mutated real model."""
    kind = rng.weighted(["graph", "mutated graph", "mutated model"], [55, 20, 25])
    if kind == "graph":
        return generate(rng)
    return mutate(rng, generate(rng) if kind == "mutated graph" else real_case(rng))
