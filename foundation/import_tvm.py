"""TVM, imported by a process that is ours alone, without what it does not use here."""

from __future__ import annotations

import os
import sys
from typing import Final

from neocpu.foundation.pinned_packages import refuse_other_versions

_LEFT_OUT: Final = ("torch", "tvm.runtime.disco")
"""Packages that TVM does without where they are missing.

PyTorch takes two seconds and half a gigabyte. The wheel lacks what disco, TVM's runtime for many
machines, stands on, and takes a tenth of a second to say so.
"""


def import_tvm() -> None:
    """Import TVM without PyTorch, disco and the back ends of other packages.

    For commands and for processes that we start, before they have threads: while TVM is imported,
    and no longer, importing what is left out fails as if it were not installed. In a program of
    somebody else it might be imported by another thread just then.

    Raises
    ------
    DependencyError
        TVM, or a package that it needs, is of another version than ours.
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
