"""A digest of everything that determines a kernel, known before it is made and in every process.

Making a kernel takes TVM milliseconds; by such a digest, its machine code is found without that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from neocpu.schedules.vocabulary.target import CpuTarget

RECIPE: Final = "neocpu.recipe"  # attribute of a function: its recipe

_OURS: Final = "neocpu."


def recipe_of(key: Any, build: Callable[[Any], Any], target: CpuTarget, threads: int) -> str | None:
    """Return a digest that only kernels with equal code share; None if that is not certain.

    `key` is made of numbers, strings, tuples and dataclasses of these, and differs between kernels
    for one target and thread count. `build` must be ours: other code may change without a new
    version.
    """
    if not build.__module__.startswith(_OURS) or not _is_ours(key):
        return None
    text = repr((key, target, threads))
    if " at 0x" in text or "..." in text:  # something is not printed in full
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _is_ours(key: Any) -> bool:
    if isinstance(key, tuple):
        return all(map(_is_ours, key))
    if isinstance(key, str | int | float | None):
        return True
    return type(key).__module__.startswith(_OURS)
