"""neocpu: compile convolutional networks to fast CPU code on Apache TVM."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neocpu.compiled_module import CompiledModule
    from neocpu.compiler import compile, tune
    from neocpu.runtime.module import Module, load

    __version__: str

__all__ = ["CompiledModule", "Module", "__version__", "compile", "load", "tune"]

# Imported on first use: running a compiled model must not import the compiler.
_HOMES = {
    "CompiledModule": "neocpu.compiled_module",
    "compile": "neocpu.compiler",
    "tune": "neocpu.compiler",
    "Module": "neocpu.runtime.module",
    "load": "neocpu.runtime.module",
}


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        from importlib.metadata import version

        value = version("neocpu")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'neocpu' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
