"""ONNX Runtime, which sends nothing: its builds may report to their maker once imported."""

from __future__ import annotations

import os
from typing import Any, Final

SWITCH: Final = "ORT_DISABLE_TELEMETRY"
"""Environment variable that ONNX Runtime looks at when it is imported."""


def import_onnxruntime() -> Any:
    """Import ONNX Runtime with its telemetry off, unless the user has said otherwise.

    Raises
    ------
    ImportError
        It is not installed.
    """
    os.environ.setdefault(SWITCH, "1")
    import onnxruntime

    return onnxruntime
