"""Attributes of ``main`` with the model's names of tensors and its order of their channels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tvm import relax

REORDERED: Final = "neocpu.reordered"
"""Attribute of ``main``: the model's channel at each position, by the name of a feature map whose
channels are in another order."""

RENAMED: Final = "neocpu.renamed"
"""Attribute of ``main``: the model's names of tensors, by the names of variables that differ."""

_NUMBERED: Final = re.compile(r"(gv|lv)\d*")  # names that TVM makes


def renamed_by(main: relax.Function) -> Mapping[str, str]:
    """Return the model's names of tensors, by the names of variables that differ from these."""
    return {str(ours): str(name) for ours, name in (main.attrs or {}).get(RENAMED, {}).items()}


def channel_orders(main: relax.Function) -> Mapping[str, tuple[int, ...]]:
    """Return the model's channel at each position, by the names of reordered feature maps."""
    orders = (main.attrs or {}).get(REORDERED, {})
    return {str(name): tuple(map(int, order)) for name, order in orders.items()}


def is_numbered(name: str) -> bool:
    """Whether TVM made a name. The model has no such names, and several variables may share one."""
    return _NUMBERED.fullmatch(name) is not None
