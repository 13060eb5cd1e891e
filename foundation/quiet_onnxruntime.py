"""Import ONNX Runtime without telemetry, which its builds may send to their maker."""

from __future__ import annotations

import os
from typing import Any, Final

SWITCH: Final = "ORT_DISABLE_TELEMETRY"
"""Environment variable that ONNX Runtime reads when it is imported."""


def import_onnxruntime() -> Any:
    """Import ONNX Runtime with its telemetry off, unless the user has set the variable."""
    os.environ.setdefault(SWITCH, "1")
    import onnxruntime

    return onnxruntime
