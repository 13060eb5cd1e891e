"""Do the same work with all modules of a model at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from neocpu import Module

T = TypeVar("T")


def on_each(modules: Sequence[Module], work: Callable[[Module], T]) -> list[T]:
    """Return the result of the work with each module.

    Any exception, Ctrl-C included, closes the modules: calls under way are waited for, and no more
    begin.
    """
    with ThreadPoolExecutor(len(modules)) as workers:
        try:
            return [*workers.map(work, modules)]
        except BaseException:
            for module in modules:
                module.close()
            raise
