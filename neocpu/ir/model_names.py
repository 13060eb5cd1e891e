"""Attributes of ``main`` that say how the model calls its tensors and orders their channels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tvm import relax

REORDERED: Final = "neocpu.reordered"
"""Attribute of ``main``: of feature maps whose channels are in another order, by their names, the
model's channel that each place has."""

RENAMED: Final = "neocpu.renamed"
"""Attribute of ``main``: variables by name, and what the model calls those it calls otherwise."""

_NUMBERED: Final = re.compile(r"(gv|lv)\d*")
"""Names that TVM makes."""


def renamed_by(main: relax.Function) -> Mapping[str, str]:
    """Return what the model calls the tensors whose variables have other names, by these."""
    return {str(ours): str(name) for ours, name in (main.attrs or {}).get(RENAMED, {}).items()}


def channel_orders(main: relax.Function) -> Mapping[str, tuple[int, ...]]:
    """Return the model's channel that each place has, of reordered feature maps, by their names."""
    told = (main.attrs or {}).get(REORDERED, {})
    return {str(name): tuple(map(int, order)) for name, order in told.items()}


def is_numbered(name: str) -> bool:
    """Whether TVM made a name: no tensor of the model's has it, and several variables may."""
    return _NUMBERED.fullmatch(name) is not None
