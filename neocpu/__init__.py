"""Compile vision networks to fast CPU code.

    neocpu.compile("net.onnx").export("net.so")          # an ONNX model, for this machine
    m = neocpu.load("net.so")                            # opens in milliseconds
    y = m(x)                                             # or m(a, b); by name: m({"image": x})
    neocpu.compile("net.onnx", tune_budget="60s")        # measures first what no database knows
    neocpu.compile_calibrated("net.onnx", samples)       # 8 bits where that is faster

`compile_fat` compiles for several CPUs into one file and `combine` joins files, `tune` measures
for a tuning database, `quantize` writes an 8-bit ONNX model, `register_operator` teaches the
compiler a `CustomOperator`. ``m.metadata.plan`` has what was decided, and the command ``neocpu
explain net.so`` shows it. A mistake raises a `NeoCPUError`, most often a `UsageError`, which is a
``ValueError`` too.
"""

# ruff: noqa: F403, F405 - errors are named once here, in `__all__`

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neocpu.building.fat_file import combine
    from neocpu.compilation.compile_fat import compile_fat
    from neocpu.compilation.compiled_module import CompiledModule
    from neocpu.compilation.compiler import compile, tune
    from neocpu.foundation.errors import *
    from neocpu.frontend.processing.processing import Processing
    from neocpu.ir.custom_operators.custom_operator import CustomOperator
    from neocpu.ir.custom_operators.registry import register_operator
    from neocpu.quantiser.compile_calibrated import compile_calibrated
    from neocpu.quantiser.quantise import quantize
    from neocpu.quantiser.quantise_options import QuantiseOptions
    from neocpu.runtime.aligned_memory import aligned_empty
    from neocpu.runtime.module import Module, load
    from neocpu.runtime.thread_pool import ThreadPool

    __version__: str

__all__ = [
    "AccuracyError",
    "ArgumentTypeError",
    "ArtifactError",
    "CompiledModule",
    "CustomOperator",
    "DatabaseError",
    "DependencyError",
    "MissingArtifactError",
    "MissingDatabaseError",
    "MissingFileError",
    "MissingModelError",
    "MissingPackageError",
    "ModelError",
    "Module",
    "NeoCPUError",
    "Processing",
    "QuantiseOptions",
    "TargetError",
    "ThreadPool",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "aligned_empty",
    "combine",
    "compile",
    "compile_calibrated",
    "compile_fat",
    "load",
    "quantize",
    "register_operator",
    "tune",
]

# Imported on first use: running a compiled model must not import the compiler.
_HOMES = {
    "CompiledModule": "neocpu.compilation.compiled_module",
    "combine": "neocpu.building.fat_file",
    "compile": "neocpu.compilation.compiler",
    "tune": "neocpu.compilation.compiler",
    "compile_fat": "neocpu.compilation.compile_fat",
    "compile_calibrated": "neocpu.quantiser.compile_calibrated",
    "CustomOperator": "neocpu.ir.custom_operators.custom_operator",
    "register_operator": "neocpu.ir.custom_operators.registry",
    "quantize": "neocpu.quantiser.quantise",
    "Processing": "neocpu.frontend.processing.processing",
    "QuantiseOptions": "neocpu.quantiser.quantise_options",
    "Module": "neocpu.runtime.module",
    "ThreadPool": "neocpu.runtime.thread_pool",
    "aligned_empty": "neocpu.runtime.aligned_memory",
    "load": "neocpu.runtime.module",
    **{name: "neocpu.foundation.errors" for name in __all__ if name.endswith("Error")},
}


if not TYPE_CHECKING:  # which would believe every name that it is asked for

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            value = _version()
        elif name in _HOMES:
            value = getattr(_module(name), name)
        else:
            what = f"module 'neocpu' has no attribute '{name}'"
            raise AttributeError(what, name=name, obj=sys.modules[__name__])
        globals()[name] = value
        return value


def _module(name: str) -> ModuleType:
    """Import the module that defines a public name.

    Raises
    ------
    DependencyError
        If a package that it needs is missing or does not fit.
    """
    home = _HOMES[name]
    if not home.startswith(("neocpu.foundation.", "neocpu.runtime.")):  # which need no TVM
        from neocpu.foundation.pinned_packages import refuse_other_versions

        refuse_other_versions()
    try:
        return importlib.import_module(home)
    except Exception as error:  # protobuf that is too old for onnx raises one of its own
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{home}.".startswith(f"{missing}."):
            raise AttributeError(
                f"neocpu.{name} needs the compiler, which neocpu-runtime does not have: "
                "pip install neocpu"
            ) from None
        from neocpu.foundation.errors import dependency_error

        if (found := dependency_error(error)) is None:
            raise
        raise found from error


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("neocpu")
    except PackageNotFoundError:
        return version("neocpu-runtime")


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
