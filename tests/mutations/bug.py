"""A bug to plant: the right text, its replacement, and the tests that ought to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bug:
    """A small bug.

    Attributes
    ----------
    path : str
        The file it is planted in.
    right, wrong : str
        A text that occurs there once, and what replaces it.
    tests : tuple of str
        Test files that ought to catch it.
    """

    name: str
    path: str
    right: str
    wrong: str
    tests: tuple[str, ...]
