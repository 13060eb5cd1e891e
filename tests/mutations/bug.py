"""A bug to plant: the right text, its replacement, and the tests that ought to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bug:
    """A small bug.

    - `path`: the file it is planted in.
    - `right`, `wrong`: a text that occurs there once, and what replaces it.
    - `tests`: test files that ought to catch it.
    """

    name: str
    path: str
    right: str
    wrong: str
    tests: tuple[str, ...]
