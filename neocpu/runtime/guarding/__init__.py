"""Run kernels with tensors next to inaccessible pages, for tests and doctor: NEOCPU_GUARD=1."""

import os
from typing import Final

GUARD_VARIABLE: Final = "NEOCPU_GUARD"
"""Environment variable. The value 1 runs the kernels of all models as `guard` describes."""


def is_guarded() -> bool:
    """Whether models run their kernels between inaccessible pages."""
    return os.environ.get(GUARD_VARIABLE, "0") not in ("", "0")
