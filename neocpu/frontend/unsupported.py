"""Find all nodes that cannot be compiled, and report them in one error, with advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Final

import onnx

from neocpu.foundation.errors import ModelError, UnsupportedError, did_you_mean
from neocpu.foundation.plain_text import plain
from neocpu.frontend.onnx_graph.subgraphs import called_operators
from neocpu.ir.custom_operators.registry import find_operator

STANDARD_DOMAINS = ("", "ai.onnx")
#: The domain of nodes that are added to a model after it was read. No file may use it, nor a domain
#: that begins with it and a dot.
OWN_DOMAIN = "neocpu"


def refuse_unknown_operators(model: onnx.ModelProto) -> None:
    """Raise an `UnsupportedError` that lists standard operators, also inner ones, not ONNX's."""
    others = list(called_operators(model))
    unknown = [
        node
        for node in others
        if node.domain in STANDARD_DOMAINS and not onnx.defs.has(node.op_type)
    ]
    if unknown:  # listed with foreign operators, which alone are no error if their nodes are dead
        foreign = [
            node
            for node in others
            if node.domain not in STANDARD_DOMAINS
            and find_operator(node.domain, node.op_type) is None
        ]
        schemas = onnx.defs.get_all_schemas()
        _refuse([*unknown, *foreign], {schema.name for schema in schemas if not schema.domain})


def refuse_own_operators(model: onnx.ModelProto) -> None:
    """Raise if a file uses an operator of our own, whose constants were not checked."""
    mine = (OWN_DOMAIN, f"{OWN_DOMAIN}.")
    nodes = called_operators(model)
    _refuse([n for n in nodes if n.domain == mine[0] or n.domain.startswith(mine[1])], ())


def refuse_unsupported(
    nodes: Iterable[onnx.NodeProto],
    known: Iterable[str],
    supports: Callable[[onnx.NodeProto], bool],
) -> None:
    """Raise an `UnsupportedError` with operators, counts and first nodes; suggest ``known``."""
    _refuse([node for node in nodes if not supports(node)], known)


def refuse_missing_inputs(model: onnx.ModelProto) -> None:
    """Raise a `ModelError` if a node lacks a required input; onnx checks callers separately."""
    versions = {_domain(o.domain): o.version for o in model.opset_import}
    for node in model.graph.node:
        domain = _domain(node.domain)
        version = versions.get(domain, 0)
        if not onnx.defs.has(node.op_type, version, domain):
            continue
        needed = onnx.defs.get_schema(node.op_type, version, domain).inputs
        for formal, given in zip_longest(needed, node.input[: len(needed)]):
            single = formal.option == onnx.defs.OpSchema.FormalParameterOption.Single
            if single and not given:
                raise ModelError(f"{describe(node)} lacks its input '{formal.name}'")
        several = needed and needed[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
        if several and not all(node.input[len(needed) - 1 :]):
            number = [*node.input].index("")
            raise ModelError(f"{describe(node)} lacks its input {number}, between others")


def describe(node: onnx.NodeProto) -> str:
    """Return ``Op 'name'`` for messages; an unnamed node has the name of its first output."""
    return f"{qualified_name(node)} '{node_name(node)}'"


def node_name(node: onnx.NodeProto) -> str:
    """Return a node's name; an unnamed node has the name of its first output."""
    return plain(node.name or next((output for output in node.output if output), "?"))


def qualified_name(node: onnx.NodeProto) -> str:
    """Return the operator's name, with its domain unless it is the standard one."""
    name = node.op_type if node.domain in STANDARD_DOMAINS else f"{node.domain}::{node.op_type}"
    return plain(name)


def _domain(name: str) -> str:
    return "" if name in STANDARD_DOMAINS else name


def _refuse(nodes: list[onnx.NodeProto], known: Iterable[str]) -> None:
    if not nodes:
        return
    names = list(known)
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        groups.setdefault(qualified_name(node), []).append(node)
    parts = []
    for name, members in sorted(groups.items()):
        first = node_name(members[0])
        advice = hint(_domain(members[0].domain), members[0].op_type, names)
        parts.append(f"{name} ({len(members)}x, first '{first}'{advice})")
    noun = "operator" if len(parts) == 1 else "operators"
    raise UnsupportedError(f"unsupported {noun}: {', '.join(parts)}")


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

_PLUGINS: Final = ("TRT", "_TRT")  # the prefix and the suffix of names of TensorRT's plugins

_PLUGIN: Final = "a plugin of TensorRT: export without it"

_OWN: Final = "add it by a package: docs/models.md, operators of your own"


def hint(domain: str, name: str, known: Iterable[str]) -> str:
    """Return advice on an unsupported operator, or "", with ``known`` ones of similar names."""
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
    schemas = onnx.defs.get_all_schemas_with_history()
    is_known = any(schema.name == name and not schema.domain for schema in schemas)
    return "" if is_known else did_you_mean(name, known)
