"""Headers that lie: one to three values of a right one changed, with a seed."""

from __future__ import annotations

import copy
import random
from typing import Any

from neocpu.runtime.header import DTYPES

Json = Any
_NUMBERS = (0, 1, -1, 2, 7, 63, 64, 127, 128, 256, 4096, 1 << 20, 1 << 31, (1 << 40) - 1, 1 << 62)
_WORDS = ("", "x", "main", "x86_64", "aarch64", "avx2", "0.0.1", "\u4e2d", "%s%n", *DTYPES)


def mutant(header: Json, seed: int) -> Json:
    """Return a header with some of its values changed, moved, dropped or doubled.

    All but the plan, which no code reads.
    """
    rng = random.Random(seed)
    changed = copy.deepcopy(header)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = [way for way in _places(changed) if way[0] != "plan"]
        *way, last = rng.choice(places)
        inner = changed
        for step in way:
            inner = inner[step]
        _change(rng, inner, last)
    return changed


def _change(rng: random.Random, inner: Json, key: Any) -> None:
    value = inner[key]
    if isinstance(inner, list) and rng.random() < 0.4:
        other = rng.randrange(len(inner))
        match rng.randrange(4):
            case 0:
                del inner[key]
            case 1:
                inner.insert(other, copy.deepcopy(value))
            case 2:
                inner[key], inner[other] = inner[other], inner[key]
            case 3:
                inner[key] = copy.deepcopy(inner[other])
    elif isinstance(value, bool) or value is None:
        inner[key] = rng.choice((None, True, False, 0, len(inner)))
    elif isinstance(value, int):
        near = (value - 1, value + 1, value // 2, value * 2, value - 64, value + 64, value + 128)
        inner[key] = rng.choice((*near, *_NUMBERS))
    elif isinstance(value, str):
        inner[key] = rng.choice(_WORDS)
    elif isinstance(value, list) and value and rng.random() < 0.5:
        rng.shuffle(value)
    elif isinstance(value, dict) and isinstance(inner, dict) and rng.random() < 0.2:
        del inner[key]
    else:
        inner[key] = rng.choice((None, [], {}, 0, "x", [1], copy.deepcopy(value)))


def _places(value: Json, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    own = [way] if way else []
    return [*own, *(place for key, each in inner for place in _places(each, (*way, key)))]
