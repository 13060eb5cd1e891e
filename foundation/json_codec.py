"""Convert dataclasses to JSON and back, by the type hints of their fields.

A dataclass becomes an object with its fields in order, a tuple an array, a frozen set a sorted
array, a mapping an object, an enumeration's member its value. A class with another JSON form has
its own ``to_json`` and ``from_json``. Hints must name types that exist in the class's module at run
time.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import (
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")
Decoder: TypeAlias = Callable[[Any], Any]

JsonObject: TypeAlias = dict[str, Any]
"""An object of a JSON document, at the border of the program; inside it is a dataclass."""


class JsonFormError(ValueError):
    """JSON that does not have a type's form: ``reason`` is the mismatch, ``place`` its place."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(f"{place}: {reason}" if place else reason)
        self.reason, self.place = reason, place


OMIT_DEFAULT: Final[Mapping[str, Any]] = {"json_omits_default": True}
"""Metadata of a field that JSON omits if it has its default."""


def json_name(name: str) -> dict[str, Any]:
    """Return the metadata of a dataclass field that JSON calls ``name``, such as ``from``."""
    return {"json_name": name}


def fields_to_json(value: Any) -> JsonObject:
    """Return the JSON form of a dataclass: an object with its fields."""
    found: JsonObject = {}
    for each in _members(value.__class__):
        content = getattr(value, each.attribute)
        if not each.omits_default or content != each.default():
            found[each.name] = value_to_json(content)
    return found


def fields_from_json(cls: type[T], data: Any, *, exact: bool = False) -> T:
    """Return the dataclass that an object of JSON stands for; the inverse of `fields_to_json`.

    If ``exact``, members without a field are an error; otherwise they are ignored, because later
    versions may write more. Raises JsonFormError, which names the place, as in ``ops[3].cost_us:
    expected a number, got 'much'``.
    """
    if not isinstance(data, dict):
        raise _mismatch("an object", data)
    members = _members(cast(Any, cls))
    values = {}
    for each in members:
        if each.name in data:
            values[each.attribute] = _at(each.name, each.decode, data[each.name])
        elif each.default is _no_default:
            raise JsonFormError("missing", each.name)
    if exact and (unknown := data.keys() - {each.name for each in members}):
        raise JsonFormError(f"not a field of {cls.__name__}", min(unknown))
    return cls(**values)


def value_to_json(value: Any) -> Any:
    """Return the JSON form of a field's value."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return fields_to_json(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: value_to_json(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(value_to_json, value))
    if isinstance(value, (tuple, list)):
        return [value_to_json(each) for each in value]
    for kind in (str, int, float):  # subclasses, such as numpy's and TVM's
        if isinstance(value, kind):
            return kind(value)
    raise AssertionError(f"no JSON form of {value!r}")


@cache
def decoder_of(hint: Any) -> Decoder:
    """Return the function that reads a type from its JSON form, or raises JsonFormError.

    `hint`: a dataclass, an enumeration, ``str``, ``int``, ``float``, ``bool``, ``None``, ``Any``,
    literals, or a tuple, frozen set, mapping by texts or union of such types.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _choice(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _fixed_tuple([decoder_of(each) for each in arguments])
    if origin in (tuple, frozenset):
        return _array(origin, decoder_of(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _object(decoder_of(arguments[1]))
    if hasattr(hint, "from_json"):
        return cast(Decoder, hint.from_json)
    if is_dataclass(hint):
        return lambda data: fields_from_json(cast(type, hint), data)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return _BASIC[hint]


@dataclass(frozen=True, slots=True)
class _Member:
    """A field of a dataclass, and the member of an object that stands for it."""

    attribute: str
    name: str
    decode: Decoder
    default: Callable[[], Any]
    omits_default: bool


def _no_default() -> Any:
    return MISSING


def _default_of(field: Field[Any]) -> Callable[[], Any]:
    if field.default_factory is not MISSING:
        return field.default_factory
    return _no_default if field.default is MISSING else lambda: field.default


@cache
def _members(cls: type) -> tuple[_Member, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Member(
            attribute=each.name,
            name=each.metadata.get("json_name", each.name),
            decode=decoder_of(hints[each.name]),
            default=_default_of(each),
            omits_default=each.metadata.get("json_omits_default", False),
        )
        for each in fields(cls)
    )


def _mismatch(expected: str, data: Any) -> JsonFormError:
    text = repr(data)
    return JsonFormError(f"expected {expected}, got {text if len(text) <= 60 else text[:59] + '…'}")


def _at(place: str, decode: Decoder, data: Any) -> Any:
    """Read a part, and add its place to errors. Subclasses of ValueError pass unchanged."""
    try:
        return decode(data)
    except JsonFormError as error:
        separator = "" if error.place.startswith("[") or not error.place else "."
        raise JsonFormError(error.reason, f"{place}{separator}{error.place}") from None
    except (TypeError, LookupError, AttributeError, ArithmeticError, ValueError) as error:
        if isinstance(error, ValueError) and type(error) is not ValueError:
            raise
        raise JsonFormError(f"{error}", place) from None


def _basic(kind: type, expected: str) -> Decoder:
    def decode(data: Any) -> Any:
        if type(data) is not kind:
            raise _mismatch(expected, data)
        return data

    return decode


def _number(data: Any) -> float:
    if type(data) not in (float, int):
        raise _mismatch("a number", data)
    return float(data)


def _choice(values: tuple[Any, ...]) -> Decoder:
    def decode(data: Any) -> Any:
        if not any(type(data) is type(value) and data == value for value in values):
            raise _mismatch(f"one of {', '.join(map(repr, values))}", data)
        return data

    return decode


def _union(kinds: tuple[Any, ...]) -> Decoder:
    decoders = [decoder_of(kind) for kind in kinds if kind is not types.NoneType]

    def decode(data: Any) -> Any:
        if data is None and types.NoneType in kinds:
            return None
        for each in decoders[:-1]:
            try:
                return each(data)
            except JsonFormError:
                continue
        return decoders[-1](data)

    return decode


def _array(made: Callable[[Any], Any], decode_one: Decoder) -> Decoder:
    def decode(data: Any) -> Any:
        if not isinstance(data, list):
            raise _mismatch("an array", data)
        return made(_at(f"[{i}]", decode_one, each) for i, each in enumerate(data))

    return decode


def _fixed_tuple(decoders: list[Decoder]) -> Decoder:
    def decode(data: Any) -> Any:
        if not isinstance(data, list) or len(data) != len(decoders):
            raise _mismatch(f"an array of {len(decoders)}", data)
        pairs = enumerate(zip(decoders, data, strict=True))
        return tuple(_at(f"[{i}]", one, each) for i, (one, each) in pairs)

    return decode


def _object(decode_one: Decoder) -> Decoder:
    def decode(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _mismatch("an object", data)
        return {key: _at(key, decode_one, each) for key, each in data.items()}

    return decode


_BASIC: Final[Mapping[Any, Decoder]] = {
    Any: lambda data: data,
    str: _basic(str, "a text"),
    int: _basic(int, "an integer"),
    bool: _basic(bool, "true or false"),
    float: _number,
}
