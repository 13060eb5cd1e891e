"""Import TVM in a process of our own, without the parts that are not used here."""

from __future__ import annotations

import os
import sys
from typing import Final

from neocpu.foundation.pinned_packages import refuse_other_versions

_LEFT_OUT: Final = ("torch", "tvm.runtime.disco")
"""Packages that TVM does not need: PyTorch takes 2 s and 0.5 GB, and disco 0.1 s to fail."""


def import_tvm() -> None:
    """Import TVM without PyTorch, disco and the back ends of other packages.

    This is for our own processes before they have threads: while TVM is imported, importing these
    packages fails as if they were not installed.
    """
    refuse_other_versions()
    os.environ.setdefault("TVM_DEVICE_BACKEND_AUTOLOAD", "0")
    absent = [name for name in _LEFT_OUT if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None: not to be found
    try:
        import tvm  # noqa: F401
    finally:
        for name in absent:
            sys.modules.pop(name, None)
