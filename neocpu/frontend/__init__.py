"""ONNX in: read, check, simplify and freeze a model, then import it into Relax.

`load_model` needs only onnx; `import_relax` needs TVM. Both are loaded on first use, so that
reading a model's inputs does not wait for the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neocpu.frontend.importer import import_relax
    from neocpu.frontend.load import load_model
    from neocpu.frontend.loaded_model import LoadedModel

__all__ = ["LoadedModel", "import_relax", "load_model"]


def __getattr__(name: str) -> Any:
    if name == "LoadedModel":
        from neocpu.frontend.loaded_model import LoadedModel

        return LoadedModel
    if name == "load_model":
        from neocpu.frontend.load import load_model

        return load_model
    if name == "import_relax":
        from neocpu.frontend.importer import import_relax

        return import_relax
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
