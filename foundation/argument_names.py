"""Messages for Python: command-line options become arguments of functions.

Messages are written once, for the command line: ``--shape x:1,3,8,8``. A caller of Python functions
reads ``shapes={'x': (1, 3, 8, 8)}`` instead. Only options that are also arguments are renamed.
"""

from __future__ import annotations

import re
from typing import Final

_SAME: Final = (
    *("accuracy", "algorithms", "batch", "budget", "goal", "input", "key", "max-error"),
    *("max-weights", "mean", "min-agreement", "nms", "opt", "pack-at-load", "parallel"),
    *("precision", "processing", "resize", "search-seconds", "solver", "std", "strategy"),
    *("streams", "target", "threads", "tracker", "trials", "tune-budget", "typical"),
)
"""Options with the same name as their argument, which has underscores."""

_OTHERS: Final = {
    "--calibrate": "neocpu.compile_calibrated",
    "--db": "databases=",
    "--disable-rule": "disable_rules=",
    "--fat": "cpus=",
    "--no-pack-at-load": "pack_at_load=False",
    "--no-verify": "verify=False",
    "--only-db": "only_databases=",
    "--output": "outputs=",
    "--shape": "shapes=",
}

_NAMES: Final = {**{f"--{name}": f"{name.replace('-', '_')}=" for name in _SAME}, **_OTHERS}

_OF_A_COMMAND: Final = r"neocpu [a-z]+ --[a-z-]+|(?:python -m|optimum-cli|git) .*"
"""Text of a command line, which stays."""

_EXTENT: Final = r"(?:\d+\.\.\d+(?:/\d+)?|\w+)"
_SHAPE: Final = rf"\S+:{_EXTENT}(?:,{_EXTENT})*"
_NUMBER: Final = r"(?:-?\d+(?:\.\d+)?|VALUE|N)"
_VALUE: Final = rf"[^\s={{}}]+=(?:\d+\.\.\d+(?:/\d+)?|{_NUMBER}(?:,{_NUMBER})*)"
_KIND: Final = r"[^\s={}]+=\w+"
_WORD: Final = r"(?!(?:is|of|or|and|needs|names|llvm)\b)[a-z]+\d*(?:-[a-z]+)*\b(?!=)"
_WORDED: Final = (
    *("accuracy", "goal", "key", "nms", "opt", "precision", "solver", "strategy", "target"),
    "tracker",
)
_PLACE: Final = r"[A-Z]{2,}(?::[A-Z]{2,})?"
_VERB: Final = "are|does|is|lists|makes|measures|names|needs|says"

_OPTION: Final = re.compile(
    rf"(?P<command>{_OF_A_COMMAND})"
    rf"|(?<![\w-])(?P<given>--shape|--typical) (?:(?P<shape>{_SHAPE})|(?P<value>{_VALUE}))"
    rf"|(?<![\w-])--output (?P<output>{_KIND})"
    r"|(?<![\w-])(?P<texted>--(?:input|resize|nms)) (?P<text>[^\s:=]+[:=x][^\s,;]*[^\s,;:])"
    rf"|(?<![\w-])(?P<worded>--(?:{'|'.join(_WORDED)})) (?P<word>{_WORD}|{_PLACE})"
    r"|(?<![\w-])(?P<quoted>--[a-z-]+) (?=['\"\d]|nan\b)"
    rf"|(?<![\w-])(?P<with_verb>--[a-z][a-z-]*) (?=(?:{_VERB})\b)"
    r"|(?<![\w-])(?P<bare>--[a-z][a-z-]*)"
)


def with_arguments(text: str) -> str:
    """Return a message with command-line options replaced by arguments of Python functions."""
    return _OPTION.sub(_argument, text) if "--" in text else text


def _argument(found: re.Match[str]) -> str:
    if shape := found["shape"]:
        name, _, extents = shape.rpartition(":")
        comma = "" if "," in extents else ","
        shape = ", ".join(map(_extent, extents.split(",")))
        return f"{_NAMES[found['given']]}{{{name!r}: ({shape}{comma})}}"
    for key, option in (("value", found["given"]), ("output", "--output")):
        if found[key]:
            name, _, value = found[key].rpartition("=")
            given = _value(value) if key == "value" else repr(value)
            return f"{_NAMES[option]}{{{name!r}: {given}}}"
    for key, value in (("worded", "word"), ("texted", "text")):
        if found[key]:
            return f"{_NAMES[found[key]]}{found[value]!r}"
    if found["quoted"]:
        return _NAMES.get(found["quoted"], f"{found['quoted']} ")
    if option := found["with_verb"]:
        return f"{_NAMES.get(option, option).removesuffix('=')} "
    return _NAMES.get(found["bare"], found["bare"]) if found["bare"] else found[0]


def _value(text: str) -> str:
    """Return an input's value in Python's syntax; several elements become a tuple of floats."""
    elements = text.split(",")
    if len(elements) == 1:
        return _extent(text)
    return f"({', '.join(f'{e}.0' if e.lstrip('-').isdigit() else e for e in elements)})"


def _extent(text: str) -> str:
    """Return an extent, or a range such as ``32..64/32``, in Python's syntax."""
    first, dots, rest = text.partition("..")
    if not dots:
        return text
    last, _, step = rest.partition("/")
    return f"range({first}, {int(last) + 1}{step and f', {step}'})"
