"""Read JSON that anybody may have written: every value is checked, and an error names its place."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

_SHOWN: Final = 40
"""Characters of a wrong value that an error shows."""

MAX_DEPTH: Final = 32
"""Arrays and objects within one another; a header has five."""

_SHORT: Final = 308
"""Characters of an integer that some double is beyond, whatever they are."""


class FieldError(ValueError):
    """A value is missing or not what its place takes; the message begins with that place."""


def parse(data: bytes) -> Any:
    """Return what a JSON text says.

    Stricter than Python's own reader: UTF-8 only, no NaN or infinity, nor a number that would be
    one as a double, no name twice in an object, no half of a surrogate pair, which no stream could
    print. A bundle's reader in C refuses the same.

    Raises
    ------
    FieldError
        If it is not such a text, or nested too deeply.
    """
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_object,
        )
        _check_depth(value)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise FieldError("it is nested too deeply") from None
    except FieldError:
        raise
    except ValueError as error:
        raise FieldError(f"it is not JSON, {error}") from None
    return value


def member(value: Any, place: str, name: str) -> tuple[Any, str]:
    """Return one member of an object, and its place."""
    if not isinstance(value, dict):
        _fail(place or "all of it", value, "an object")
    inner = f"{place}.{name}" if place else name
    if name not in value:
        raise FieldError(f"{inner} is missing")
    return value[name], inner


def integer(value: Any, place: str, low: int, high: int) -> int:
    """Return a whole number from ``low`` to ``high``."""
    if type(value) is not int or not low <= value <= high:
        _fail(place, value, f"a whole number from {low} to {high}")
    return value


def boolean(value: Any, place: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        _fail(place, value, "true or false")
    return value


def string(value: Any, place: str) -> str:
    """Return a string without zeros, at which C would end it; it may be empty."""
    if not isinstance(value, str):
        _fail(place, value, "a string")
    if "\0" in value:
        raise FieldError(f"{place}: there is a zero in the string")
    return value


def array(value: Any, place: str, most: int) -> list[tuple[Any, str]]:
    """Return the elements of an array of at most ``most``, each with its place."""
    if not isinstance(value, list) or len(value) > most:
        _fail(place, value, f"an array of at most {most}")
    return [(item, f"{place}[{index}]") for index, item in enumerate(value)]


def _fail(place: str, value: Any, wanted: str) -> NoReturn:
    shown = json.dumps(value)
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "…"
    raise FieldError(f"{place}: {shown} is not {wanted}")


def _refuse(constant: str) -> NoReturn:
    raise FieldError(f"it holds {constant}, which is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise FieldError(f"it holds {text[:_SHOWN]}, which is beyond every number")
    return value


def _whole(text: str) -> int:
    if len(text) > _SHORT:
        _finite(text)
    return int(text)


def _check_depth(value: Any) -> None:
    """Raise if a value is nested more than `MAX_DEPTH` deep: level by level, not by recursion."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return
        inner = (each.values() if isinstance(each, dict) else each for each in containers)
        level = [one for values in inner for one in values]
    raise FieldError("it is nested too deeply")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise FieldError(f"an object names {_repeated(pairs)} twice")
    return value


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            break
        seen.add(name)
    return json.dumps(name)[:_SHOWN]
