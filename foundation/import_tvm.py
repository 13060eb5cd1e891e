"""Import TVM in a process of our own, without the parts that are not used here."""

from __future__ import annotations

import os
import sys
from typing import Final

from neocpu.foundation.pinned_packages import refuse_other_versions

_LEFT_OUT: Final = ("torch", "tvm.runtime.disco")
"""Packages that TVM does not need.

PyTorch takes two seconds and half a gigabyte. The wheel lacks a part that disco, TVM's runtime for
many machines, needs, and takes a tenth of a second to find out.
"""


def import_tvm() -> None:
    """Import TVM without PyTorch, disco and the back ends of other packages.

    This is for commands and for processes that we start, before they have threads. Only while TVM
    is imported, importing these packages fails as if they were not installed. In other people's
    programs, another thread might import one at that moment.
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
