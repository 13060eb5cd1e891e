"""Wrong headers: one to three values of a right one changed by a seed, or by hand."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from neocpu.foundation.dtypes import DTYPES

Json = Any
_NUMBERS = (0, 1, -1, 2, 7, 63, 64, 127, 128, 256, 4096, 1 << 20, 1 << 31, (1 << 40) - 1, 1 << 62)
_WORDS = ("", "x", "main", "x86_64", "aarch64", "avx2", "0.0.1", "\u4e2d", "%s%n", *DTYPES)
_OTHERS: tuple[Json, ...] = (None, True, 0, 1.5, "x", [], {})

_PIECES = (
    *(b"0", b"9", b"-", b"-0", b"01", b".5", b"e9", b"1e999", b"1e-999"),
    *(b"9" * 310, b"0x1", b"NaN"),
    *(b",", b":", b"[", b"]", b"{", b"}", b"[]", b"{}", b'"a":1,', b'"plan":{},', b"null", b"true"),
    *(b'"', b"\\", b"\\n", b"\\u0000", b"\\u0061", b"\\ud800", b"\\udc00", b"\\ud83d\\ude00"),
    *(b" ", b"\n", b"\t", b"\x00", b"\x0c", b"\x7f", b"\x80", b"\xc3\xa9", b"\xef\xbb\xbf"),
    *(b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"\xc0\x80"),
)

_SCALAR = '{"name":"s","dtype":"int64","shape":[]'
_PLAN, _INPUTS, _OUTPUTS = '"plan":{', '"inputs":[', '"outputs":['
_MANY = "".join(f'{{"name":"{i}","dtype":"bool","shape":[]}},' for i in range(5000))

Edits = tuple[tuple[str, str], ...]
"""Edits of a header's compact text: parts that occur once, and their replacements."""

MALFORMED: dict[str, Edits] = {
    "no plan": ((_PLAN, '"plans":{'),),
    "plan that is a number": ((_PLAN, '"plan":3,"rest":{'),),
    "no version": (('"neocpu":', '"neocpus":'),),
    "version that is a number": (('"neocpu":', '"neocpu":7,"rest":'),),
    "name twice in the plan": ((_PLAN, '"plan":{"a":1,"b":2,"a":3,'),),
    "name twice, spelt in two ways": ((_PLAN, '"plan":{"a":1,"\\u0061":3,'),),
    "unknown name twice": ((_PLAN, '"a":1,"a":2,"plan":{'),),
    "number beyond all": ((_PLAN, '"plan":{"a":1e999,'),),
    "negative number beyond all": ((_PLAN, '"plan":{"a":-2.5E+308,'),),
    "integer beyond all": ((_PLAN, f'"plan":{{"a":{"9" * 400},'),),
    "half of a pair": ((_PLAN, '"plan":{"a":"\\ud800",'),),
    "other half of a pair": ((_PLAN, '"plan":{"a":"\\uDC00\\ud800",'),),
    "half of a pair in a name": ((_PLAN, '"plan":{"\\ud83dx":1,'),),
    "half of a pair in front of an escape": ((_PLAN, '"plan":{"a":"\\ud83d\\n",'),),
    "too many inputs": ((_INPUTS, _INPUTS + _MANY),),
    "too many outputs": ((_OUTPUTS, _OUTPUTS + _MANY),),
    "no outputs": ((_OUTPUTS, '"outputs":[],"rest":['),),
    "bounded scalar": ((_INPUTS, _INPUTS + _SCALAR + ',"bounded":true},'),),
    "count that is an output": (
        (_OUTPUTS, _OUTPUTS + _SCALAR + "},"),
        ('"shape":[4,33]}', '"shape":[4,33],"bounded":true}'),
        ('"row_counts":[', '"row_counts":[null,0'),
    ),
    "count that is left out": (
        (_OUTPUTS, _OUTPUTS + _SCALAR + "},"),
        ('"shape":[4,33]}', '"shape":[4,33],"bounded":true}'),
        ('"row_counts":[', '"row_counts":[null,3'),
    ),
    "zero in a name": (('"name":"linear"', '"name":"li\\u0000near"'),),
    "zero in an input's name": (('"name":"x"', '"name":"x\\u0000"'),),
    "plan nested too deeply": ((_PLAN, f'"plan":{{"a":{"[" * 31}{"]" * 31},'),),
    "plan nested very deeply": ((_PLAN, f'"plan":{{"a":{"[" * 41}{"]" * 41},'),),
}
"""Headers that every runtime refuses as such."""

RIGHT: dict[str, Edits] = {
    "as it was": (),
    "size of minus zero": (('"activations":[[0,', '"activations":[[-0,'),),
    "escaped field": (('"machine"', '"machin\\u0065"'),),
    "escaped field within": (('"apache-tvm":', '"\\u0061pache\\u002Dtvm":'),),
    "escaped dtype": (('"float32","shape":[4,64]', '"float3\\u0032","shape":[4,64]'),),
    "escaped name": (('"name":"linear"', '"name":"li\\u006eear"'),),
    "zeros in the plan": ((_PLAN, '"plan":{"a\\u0000":"\\u0000","a":"\\u0000b",'),),
    "names in two objects": ((_PLAN, '"plan":{"a":{"b":1},"b":{"a":1,"b":2},'),),
    "numbers of any size": ((_PLAN, f'"plan":{{"a":[-0,-0.0,1e308,1e-999,{"9" * 308}],'),),
    "pairs": ((_PLAN, '"plan":{"\\ud83d\\ude00":"\\uD83D\\uDE00\\n",'),),
    "plan nested as deeply as may be": ((_PLAN, f'"plan":{{"a":{"[" * 30}{"]" * 30},'),),
}
"""Other spellings of the header."""


def edited(header: bytes, edits: Edits) -> bytes:
    """Return a header's text with edits."""
    text = header.decode()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.encode()


def mutant(header: Json, seed: int) -> Json:
    """Return a header with some of its values changed, moved, dropped or doubled.

    The plan, which no code reads, is changed as a whole.
    """
    rng = random.Random(seed)
    changed = copy.deepcopy(header)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = [way for way in _places(changed) if way[0] != "plan" or len(way) == 1]
        *way, last = rng.choice(places)
        inner = changed
        for step in way:
            inner = inner[step]
        _change(rng, inner, last)
    return changed


def mutant_text(header: Json, seed: int) -> bytes:
    """Return the text of such a header, or of the right one, with a few bytes changed."""
    rng = random.Random(seed)
    fields = mutant(header, seed) if rng.random() < 0.5 else header
    text = json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode()
    for _ in range(rng.randrange(3)):
        at, other, length = rng.randrange(len(text)), rng.randrange(len(text)), rng.randrange(24)
        put = rng.choice((b"", text[other : other + length], *_PIECES))
        text = text[:at] + put + text[at + rng.choice((0, 0, len(put), length)) :]
    return text


def _change(rng: random.Random, inner: Json, key: Any) -> None:
    value = inner[key]
    if rng.random() < 0.2:
        inner[key] = copy.deepcopy(rng.choice(_OTHERS))
    elif isinstance(inner, dict) and rng.random() < 0.2:
        del inner[key]
    elif isinstance(inner, list) and rng.random() < 0.4:
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
