"""Printed tables that declare their columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from neocpu.foundation.console.terminal import print_table

Item = TypeVar("Item")


def print_columns(
    items: Iterable[Item], columns: Mapping[str, Callable[[Item], str]], right: Collection[str] = ()
) -> None:
    """Print a row for each item; a column has its title and the cell of an item."""
    rows = [[cell(item) for cell in columns.values()] for item in items]
    print_table(tuple(columns), rows, right=tuple(right))
