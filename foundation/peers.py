"""The inference engines that neocpu is compared with, and whether they are installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

ONNXRUNTIME: Final = "onnxruntime"
OPENVINO: Final = "openvino"
NCNN: Final = "ncnn"

PEERS: Final = (ONNXRUNTIME, OPENVINO, NCNN)
"""The engines that neocpu is compared with. Each is a Python package of the same name."""

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({NCNN: (NCNN, "pnnx")})
"""The Python packages that a peer needs, if it needs more than the one of its name."""


def installed(peer: str) -> bool:
    """Return whether a peer can be run, without importing it."""
    return all(importlib.util.find_spec(name) is not None for name in REQUIRED.get(peer, (peer,)))


def install_hint(peer: str) -> str:
    """Return the commands that install a peer."""
    hint = "pip install 'neocpu[bench]'"
    # Its distribution declares a dependency on torch, which converting ONNX does not use.
    return f"{hint} && pip install --no-deps pnnx" if "pnnx" in REQUIRED.get(peer, ()) else hint


SWITCH: Final = "ORT_DISABLE_TELEMETRY"
"""Environment variable that ONNX Runtime reads when it is imported."""


def import_onnxruntime() -> Any:
    """Import ONNX Runtime with its telemetry off, unless the user has set the variable."""
    os.environ.setdefault(SWITCH, "1")
    import onnxruntime

    return onnxruntime
