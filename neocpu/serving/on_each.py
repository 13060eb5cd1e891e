"""The same done with all modules of a model at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from neocpu import Module

T = TypeVar("T")


def on_each(modules: Sequence[Module], work: Callable[[Module], T]) -> list[T]:
    """Return what it comes to with each.

    Whatever is raised meanwhile, Ctrl-C included, closes them: it waits for the calls under way,
    and for no more of them.
    """
    with ThreadPoolExecutor(len(modules)) as workers:
        try:
            return [*workers.map(work, modules)]
        except BaseException:
            for module in modules:
                module.close()
            raise
