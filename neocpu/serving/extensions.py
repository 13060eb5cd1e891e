"""The server's offers to an application beyond ASGI, by their names in a scope's ``extensions``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

REST: Final = "neocpu.rest"
"""A `Rest`, where the length of the body is known."""
Rest: TypeAlias = Callable[[memoryview], Awaitable[int]]
"""Reads what follows the first piece of a body to where an application wants it, as much as there
is room for; returns how many bytes came."""

KEEP_NEXT: Final = "neocpu.keep_next"
"""A function: what is sent next goes out with what is sent after it, as one piece unless it
is large."""

GONE: Final = "neocpu.gone"
"""A future of the connection, which is done when the client has gone."""
