"""Sets of shapes that a caller requests: the signatures to compile an artifact for."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from neocpu.foundation.errors import UsageError
from neocpu.frontend.shapes.input_shapes import Given, InputShapes, RangedShape, parse_given

Shapes: TypeAlias = "Mapping[str, Given | RangedShape] | Sequence[Mapping[str, Given]]"
"""Shapes of inputs by name, perhaps with ranges; or a sequence of them, one for each signature."""

MAX_SIGNATURES: Final = 64  # the most signatures of a set

_RANGE: Final = r"\d{1,18}\.\.\d{1,18}(?:/\d{1,18})?"
_CHOICE: Final = rf"(?:{_RANGE}|\d{{1,18}})"
_EXTENT: Final = rf"(?:{_CHOICE}|\{{(?:{_CHOICE}(?:,{_CHOICE})*)?\}})"


def parse_set(text: str) -> tuple[str, tuple[Given, ...]] | None:
    """Parse ``NAME:{1,4},3,224,224`` or ``NAME=1..16``, a set of shapes or values.

    Extents in braces combine in all ways; a range stands for its ends and the powers of two
    between, or, as ``224..448/32``, for each step from its first to its last extent. A text that
    `parse_given` takes is a set of one, and another form None; an empty or too large set, and a
    step that misses the last extent, are a `UsageError`.
    """
    if match := re.fullmatch(rf"(.+):({_EXTENT}(?:,{_EXTENT})*)", text):
        extents = [_choices(each, text) for each in re.findall(_EXTENT, match[2])]
        _check_count(math.prod(map(len, extents)))
        return match[1], tuple(itertools.product(*extents))
    if match := re.fullmatch(rf"(.+)=({_RANGE}|\{{[^{{}}]*\}})", text):
        if not re.fullmatch(_EXTENT, match[2]):
            return None
        return match[1], tuple(_choices(match[2], text))
    given = parse_given(text)
    return None if given is None else (given[0], (given[1],))


def _choices(extent: str, text: str) -> list[int]:
    found: list[int] = []
    for each in filter(None, extent.strip("{}").split(",")):
        first, _, rest = each.partition("..")
        last, _, step = rest.partition("/")
        if step:
            found += _steps(int(first), int(last), int(step), text)
        else:
            found += _good_set(int(first), int(last)) if last else [int(first)]
    if not found:
        raise UsageError(f"--shape {text}: '{extent}' is an empty set; give it an extent")
    return found


def _steps(first: int, last: int, step: int, text: str) -> range:
    """Return ``first``, ``first + step`` and so on to ``last``."""
    if not step:
        raise UsageError(f"--shape {text}: a step of 0 never reaches {last}; give 1 or more")
    if first > last:
        return range(0)
    if missed := (last - first) % step:
        reached = last - missed
        raise UsageError(
            f"--shape {text}: steps of {step} from {first} miss {last}; end with {reached} or "
            f"{reached + step}"
        )
    _check_count((last - first) // step + 1)
    return range(first, last + 1, step)


def _good_set(first: int, last: int) -> list[int]:
    powers = (1 << exponent for exponent in range(last.bit_length()))
    between = [power for power in powers if first < power < last]
    return sorted({first, *between, last}) if first <= last else []


def join_sets(given: Sequence[tuple[str, tuple[Given, ...]]]) -> list[dict[str, Given]]:
    """Return the signatures of several options.

    Options for one name form one list. Numbers in braces or ranges, and extents of one shape,
    combine in all ways. Signature i takes element i, or the only one, of each list: the
    combinations, and the lists of other names. Lists of different lengths, or too many
    combinations, are a `UsageError`.
    """
    lists: dict[str, list[Given]] = {}
    for name, choices in given:
        lists.setdefault(name, []).extend(choices)
    numbers = [n for n, each in given if len(each) > 1 and all(isinstance(e, int) for e in each)]
    combined = {name: lists[name] for name in numbers}
    _check_count(math.prod(map(len, combined.values())))
    combinations = [
        dict(zip(combined, each, strict=True)) for each in itertools.product(*combined.values())
    ]
    beside = {name: choices for name, choices in lists.items() if name not in combined}
    counts = {f"'{name}'": len(choices) for name, choices in beside.items()}
    counts[" with ".join(f"'{name}'" for name in combined)] = len(combinations)
    counts = {names: count for names, count in counts.items() if count > 1}
    if len(set(counts.values())) > 1:
        listed = " and ".join(f"{count} choices for {names}" for names, count in counts.items())
        raise UsageError(
            f"--shape gives {listed}, which are paired in order: give as many for each, or one; "
            "for all combinations use braces in one shape, as x:{1,4},3,{32,40}, or for named "
            "dimensions, as b={1,4} and h={32,40}"
        )
    signatures = [
        {name: choices[number % len(choices)] for name, choices in beside.items()}
        | combinations[number % len(combinations)]
        for number in range(max(counts.values(), default=1))
    ]
    return [{name: each[name] for name in lists} for each in signatures]


def parse_signatures(shapes: Shapes | None) -> Sequence[Mapping[str, Given | RangedShape]]:
    """Return the signatures of a set, or the only one; a bad set is a `UsageError`."""
    if shapes is None or isinstance(shapes, Mapping):
        return [shapes or {}]
    signatures = list(shapes) if isinstance(shapes, Iterable) else [shapes]
    if not signatures:
        raise UsageError("an empty set of shapes: give at least one signature")
    _check_count(len(signatures))
    known: list[InputShapes] = []
    for each in signatures:
        if not isinstance(each, Mapping):
            raise UsageError(
                "shapes are a mapping from names of inputs to shapes, as {'image': (1, 3, 224, "
                f"224)}}, or a sequence of such for a set, got {shapes!r}"
            )
        if (parsed := InputShapes.parse(each)) in known:
            text = " ".join(_given_text(name, given) for name, given in each.items())
            raise UsageError(f"--shape {text} is given twice: give each signature once")
        known.append(parsed)
    return signatures


def _check_count(count: int) -> None:
    if count > MAX_SIGNATURES:
        raise UsageError(
            f"a set of {count} shapes: an artifact has at most {MAX_SIGNATURES}; give fewer "
            "extents, or larger steps"
        )


def _given_text(name: str, given: Given) -> str:
    if isinstance(given, int | float):
        return f"{name}={given}"
    is_value = len(given) > 0 and isinstance(given[0], float)
    return f"{name}{'=' if is_value else ':'}{','.join(map(str, given))}"
