"""A choice between two pieces of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.tirx.script.builder import ir as T


def either(
    condition: Any, then: Callable[[], None], other: Callable[[], None] | None = None
) -> None:
    """Emit ``then()`` where a condition holds, and otherwise ``other()``; None always holds."""
    if condition is None:
        then()
        return
    with T.If(condition):
        with T.Then():
            then()
        if other is not None:
            with T.Else():
                other()
