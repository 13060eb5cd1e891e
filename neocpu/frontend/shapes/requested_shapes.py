"""Sets of shapes that a caller requests: the signatures to compile an artifact for."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from neocpu.foundation.errors import UsageError
from neocpu.frontend.shapes.input_shapes import Given, InputShapes, RangedShape, parse_given

Shapes: TypeAlias = "Mapping[str, Given | RangedShape] | Sequence[Mapping[str, Given]]"
"""Shapes of inputs by name, perhaps with ranges; or a sequence of them, one for each signature."""

MAX_SIGNATURES: Final = 64  # the most signatures of a set

_RANGE: Final = r"\d{1,18}\.\.\d{1,18}(?:/\d{1,18})?"
_CHOICE: Final = rf"(?:{_RANGE}|\d{{1,18}})"
_EXTENT: Final = rf"(?:{_CHOICE}|\{{(?:{_CHOICE}(?:,{_CHOICE})*)?\}})"


def has_form(text: str) -> bool:
    """Return whether a text is a shape, a number, a set or ranges of them, good or bad."""
    return _Written.of(text) is not None or parse_given(text) is not None


def parse_request(texts: Sequence[str], *, one_plan: bool) -> Shapes:
    """Return what ``--shape`` options request: a signature, a set, or ranges of sizes.

    Ranges are of sizes if the caller wants ``one_plan`` for them, or if they stand for more shapes
    than a set may have. Raises a `UsageError`, also if ranges of sizes are beside a set.
    """
    written = [each for text in texts if (each := _Written.of(text)) is not None]
    has_ranges = any(each.ranges for each in written)
    if one_plan and not has_ranges:
        raise UsageError(
            "--typical is for ranges of sizes, as h=32..2048/32 or x:1,3,32..2048/32,64: give a "
            "range, or leave it out"
        )
    if has_ranges and (one_plan or _shapes_of_set(written) > MAX_SIGNATURES):
        return _ranged(texts)
    sets = [given for text in texts if (given := parse_set(text)) is not None]
    signatures = join_sets(sets)
    return signatures[0] if len(signatures) == 1 else signatures


def parse_set(text: str) -> tuple[str, tuple[Given, ...]] | None:
    """Parse ``NAME:{1,4},3,224,224`` or ``NAME=1..16``, a set of shapes or values.

    Extents in braces combine in all ways; a range stands for its ends and the powers of two
    between, or, as ``224..448/32``, for each step from its first to its last extent. A text that
    `parse_given` takes is a set of one, and another form None; an empty or too large set, and a
    step that misses the last extent, are a `UsageError`.
    """
    if (written := _Written.of(text)) is None:
        given = parse_given(text)
        return None if given is None else (given[0], (given[1],))
    pieces = [_choices(each, text) for each in written.extents]
    _check_count(math.prod(map(_length, pieces)))
    extents = [list(itertools.chain(*each)) for each in pieces]
    if written.is_number:
        return written.name, tuple(extents[0])
    return written.name, tuple(itertools.product(*extents))


@dataclass(frozen=True, slots=True)
class _Written:
    """A name and the texts of its extents, which may be sets or ranges."""

    text: str
    name: str
    extents: tuple[str, ...]
    is_number: bool  # the extent of a named dimension, or a value

    @classmethod
    def of(cls, text: str) -> _Written | None:
        if match := re.fullmatch(rf"(.+):({_EXTENT}(?:,{_EXTENT})*)", text):
            return cls(text, match[1], tuple(re.findall(_EXTENT, match[2])), is_number=False)
        match = re.fullmatch(rf"(.+)=({_RANGE}|\{{[^{{}}]*\}})", text)
        if match is None or not re.fullmatch(_EXTENT, match[2]):
            return None
        return cls(text, match[1], (match[2],), is_number=True)

    @property
    def ranges(self) -> list[str]:
        """The ranges that are not in braces."""
        return [each for each in self.extents if ".." in each and "{" not in each]

    @property
    def has_braces(self) -> bool:
        return any("{" in each for each in self.extents)

    def count(self) -> int:
        """Return the number of shapes or numbers of its set."""
        return math.prod(_length(_choices(each, self.text)) for each in self.extents)


def _shapes_of_set(written: Sequence[_Written]) -> int:
    """Return how many shapes a set has; lists that cannot be paired count in all combinations."""
    counts: dict[str, int] = {}
    for each in written:
        counts[each.name] = counts.get(each.name, 0) + each.count()
    numbers = {each.name for each in written if each.is_number}
    lists = [counts[name] for name in counts if name not in numbers and counts[name] > 1]
    lists.append(math.prod(counts[name] for name in numbers))
    lengths = {length for length in lists if length > 1}
    return math.prod(lists) if len(lengths) > 1 else max(lists)


def _ranged(texts: Sequence[str]) -> dict[str, Given | RangedShape]:
    """Return shapes and numbers with ranges of sizes; with a set, they are a `UsageError`."""
    shapes: dict[str, Given | RangedShape] = {}
    for text in texts:
        written, given = _Written.of(text), parse_given(text)
        name = written.name if written is not None else given[0] if given is not None else ""
        if name in shapes or (written is not None and written.has_braces):
            raise UsageError(
                f"--shape {text} makes a set beside ranges of sizes: give ranges or a set, not "
                f"both; a set has at most {MAX_SIGNATURES} shapes"
            )
        if written is not None:
            extents = [_range(each, text) for each in written.extents]
            shapes[name] = extents[0] if written.is_number else tuple(extents)
        elif given is not None:
            shapes[name] = given[1]
    return shapes


def _range(extent: str, text: str) -> int | range:
    first, _, rest = extent.partition("..")
    last, _, step = rest.partition("/")
    return _steps(int(first), int(last), int(step or 1), text) if last else int(first)


def _choices(extent: str, text: str) -> list[Sequence[int]]:
    """Return the extents that an extent, a range or a set stands for, in pieces."""
    found: list[Sequence[int]] = []
    for each in filter(None, extent.strip("{}").split(",")):
        first, _, rest = each.partition("..")
        last, _, step = rest.partition("/")
        if step:
            found.append(_steps(int(first), int(last), int(step), text))
        else:
            found.append(_good_set(int(first), int(last)) if last else [int(first)])
    if not any(found):
        raise UsageError(f"--shape {text}: '{extent}' is an empty set; give it an extent")
    return found


def _length(pieces: Sequence[Sequence[int]]) -> int:
    return sum(map(len, pieces))


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
