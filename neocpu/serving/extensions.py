"""The server's offers to an application beyond ASGI, by their names in a scope's ``extensions``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

REST: Final = "neocpu.rest"
"""The name of a `Rest`, which is offered if the length of the body is known."""
Rest: TypeAlias = Callable[[memoryview], Awaitable[int]]
"""Reads the data after the first piece of a body into the application's memory, up to its size;
returns the number of bytes."""

KEEP_NEXT: Final = "neocpu.keep_next"
"""The name of a function that joins the next message sent to the one after it, unless that is
large."""

GONE: Final = "neocpu.gone"
"""The name of a future of the connection, which is done when the client has gone."""
