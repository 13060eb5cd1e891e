"""Settings of a process that is ours alone: a command's, a child's, a test's."""

from __future__ import annotations

import gc
import os
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 50)
"""New objects per collection of the young; of these, per collection of the next; and so on."""

_AT_ONCE: Final = "4"
"""The least that OpenBLAS takes: the logarithm of how many cycles an idle thread looks for work."""


def collect_rarely() -> None:
    """Look for cycles seldom.

    By default Python looks through all new objects after each 700, and again and again through the
    hundreds of thousands that TVM's and ONNX's modules are made of: a tenth of a compilation's
    time. Hardly anything it finds is garbage; what TVM holds is counted.
    """
    gc.set_threshold(*_THRESHOLDS)


def wait_idly() -> None:
    """Have numpy's threads sleep between two products; before numpy is imported.

    They look for more to do for hundredths of a second, on CPUs that code is generated on.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", _AT_ONCE)


def end_quickly() -> None:
    """Have the interpreter not look for cycles once more among all there is, before it ends.

    After TVM was imported that takes a quarter of a second.
    """
    gc.freeze()
