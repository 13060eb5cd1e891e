"""Text of somebody else's files, such as names, without what a terminal would act on."""

from __future__ import annotations


def plain(text: str) -> str:
    """Return ``text`` on one line, everything that is not printable escaped as Python does.

    Control characters, terminal escapes, line ends and characters that turn the direction of
    writing (a name could otherwise forge lines, or hide what it is) become ``\\n``, ``\\x1b`` or
    ``\\u202e``. The rest stays as it is, whatever the script.

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
