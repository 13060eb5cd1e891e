"""Removing names, folders and values of variables from texts that strangers may see."""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import neocpu

LEAST: Final = 4
"""Least length of a variable's value that is replaced; shorter ones are numbers and switches."""

_FOLDER: Final = "/…"
# Absolute paths, also after a compiler's -I or -L, and relative paths that begin with dots.
_PATH: Final = re.compile(
    r"""(?:(?<![\w.])|(?<=\s-[IL]))\.{0,2}(?:/[^\s/'",;:()]+)*/([^\s/'",;:()]+)"""
)
_LOGIN: Final = re.compile(r"(?<=://)[^\s/@]+@")


def without_secrets(text: str) -> str:
    """Return a text with only the last parts of paths, and without names of users and the host."""
    known = _replaced(_LOGIN.sub("", text), dict.fromkeys(_folders(), _FOLDER))
    return _nameless(_PATH.sub(r"…/\1", known))


def without_values(text: str) -> str:
    """Do as `without_secrets`, and put variables' names in place of their values."""
    values: dict[str, str] = {}
    for name, value in os.environ.items():
        for part in {value, *value.split(os.pathsep)}:
            values.setdefault(part, _FOLDER if part.startswith("/") else f"${name}")
    known = {value: name for value, name in values.items() if len(value) >= LEAST}
    return without_secrets(_replaced(text, known))


def _folders() -> Iterable[str]:
    own = Path(neocpu.__file__).parent
    home, here = os.path.expanduser("~"), os.getcwd()
    found = (home, here, sys.prefix, sys.base_prefix, str(own), tempfile.gettempdir())
    return (folder for folder in found if len(folder) > 1)


def _replaced(text: str, others: Mapping[str, str]) -> str:
    """Replace whole words, the longest first, in one pass: replacements are not replaced again."""
    if not others:
        return text
    longest = sorted(others, key=len, reverse=True)
    return re.sub("|".join(map(_whole, longest)), lambda found: others[found[0]], text)


def _whole(word: str) -> str:
    """Return a pattern that matches a text where it is no part of a longer word."""
    before, after = (r"\w" if end.isalnum() else "(?!)" for end in (word[0], word[-1]))
    return f"(?<!{before}){re.escape(word)}(?!{after})"


def _nameless(text: str) -> str:
    host = socket.gethostname()
    names = {name: "<host>" for name in (host, host.partition(".")[0])}
    for find in (getpass.getuser, lambda: Path.home().name):
        try:
            names[find()] = "<user>"
        except (KeyError, OSError, RuntimeError):  # the system does not know the user
            continue
    return _replaced(text, {name: other for name, other in names.items() if name})
