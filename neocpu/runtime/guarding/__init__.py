"""Tensors against inaccessible pages, for tests and for doctor: NEOCPU_GUARD=1."""

import os
from typing import Final

GUARD_VARIABLE: Final = "NEOCPU_GUARD"
"""Environment variable: 1 has the kernels of all models run as `guard` says."""


def is_guarded() -> bool:
    """Whether models run their kernels between inaccessible pages."""
    return os.environ.get(GUARD_VARIABLE, "0") not in ("", "0")
