"""Advice on operators that cannot be compiled, which messages append to their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import onnx

from neocpu.foundation.errors import did_you_mean

_STANDARD: Final = {
    "DFT MelWeightMatrix STFT": (
        "compute spectra before the model, or export them as convolutions"
    ),
    "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer": (
        "do the work on text outside the model"
    ),
    "ImageDecoder": "decode images outside the model",
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike": (
        "outputs would be random: export the model in evaluation mode, or give the numbers as an "
        "input"
    ),
}
"""Advice by names of operators that ONNX defines."""

_ML: Final = "compile the network before it alone, and run trees and the like in another runtime"

_DOMAINS: Final = {
    "ai.onnx.ml": _ML,
    "ai.onnx.preview.training": "it trains: export the inference graph",
    "ai.onnx.training": "it trains: export the inference graph",
    "com.microsoft": (
        "ONNX Runtime's own: give the model as it was before onnxruntime or optimum optimised it"
    ),
    "com.microsoft.nchwc": (
        "written by onnxruntime for one machine: give the model as it was before it optimised it"
    ),
    "org.pytorch.aten": "export again with a newer torch.onnx, or a newer opset",
    "aten": "export again with a newer torch.onnx, or a newer opset",
}

_PLUGINS: Final = ("TRT", "_TRT")
"""The prefix and the suffix of names of TensorRT's plugins."""

_PLUGIN: Final = "a plugin of TensorRT: export without it"

_OWN: Final = "add it by a package: docs/models.md, operators of your own"


def hint(domain: str, name: str, known: Iterable[str]) -> str:
    """Return advice on an unsupported operator, after a semicolon, or "".

    The ``known`` operators are of ONNX's own domain, ""; the name may be a misspelling of one.
    """
    if name.startswith(_PLUGINS[0]) or name.endswith(_PLUGINS[1]) or domain.startswith(_PLUGINS[0]):
        return f"; {_PLUGIN}"
    if domain:
        if domain.startswith("com.microsoft") and name.endswith(("Grad", "GradV2", "Optimizer")):
            return f"; {_DOMAINS['ai.onnx.training']}"
        return f"; {_DOMAINS.get(domain, _OWN)}"
    advice = next((text for names, text in _STANDARD.items() if name in names.split()), None)
    if advice is not None:
        return f"; {advice}"
    # A name that ONNX knows is not misspelt, however similar to another.
    return "" if _is_known(name) else did_you_mean(name, known)


def _is_known(name: str) -> bool:
    schemas = onnx.defs.get_all_schemas_with_history()
    return any(schema.name == name and schema.domain == "" for schema in schemas)
