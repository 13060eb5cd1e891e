"""Escape text from other people's files, such as names, so that a terminal cannot act on it."""

from __future__ import annotations


def plain(text: str) -> str:
    """Return ``text`` on one line, with unprintable characters escaped as in Python.

    A name could otherwise forge lines or hide its content. All other characters stay.

    >>> plain("net\\x1b[2J")
    'net\\\\x1b[2J'
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def shortened(text: str, limit: int) -> str:
    """Return ``text`` as `plain` does, cut to ``limit`` characters where it is longer."""
    shown = plain(text)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _escaped(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
