"""Python's cyclic garbage collector, for processes that are ours alone."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 50)
"""New objects per collection of the young; of these, per collection of the next; and so on."""


def collect_rarely() -> None:
    """Look for cycles seldom.

    By default Python looks through all new objects after each 700, and again and again through the
    hundreds of thousands that TVM's and ONNX's modules are made of: a tenth of a compilation's
    time. Hardly anything it finds is garbage; what TVM holds is counted.
    """
    gc.set_threshold(*_THRESHOLDS)
