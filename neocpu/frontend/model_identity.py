"""The identity of a model: its operators and its weights, whichever file they are in.

Shapes of inputs, names of nodes, documentation and the producer do not change it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import onnx

from neocpu.frontend.checks.tensor_check import all_tensors
from neocpu.frontend.onnx_graph.subgraphs import model_nodes
from neocpu.frontend.onnx_graph.weight_store import bytes_of_tensor, is_stored
from neocpu.ir.array_digests import elements_digest

MADE_OF: Final = "neocpu.made_of"
"""The metadata key under which a model names the models that it was made from."""
_DIGITS: Final = 16  # hexadecimal digits kept of a digest; no two of a billion models have the same
_ELSEWHERE: Final = tuple(
    getattr(onnx.AttributeProto, kind) for kind in ("TENSOR", "TENSORS", "GRAPH", "GRAPHS")
)
"""Types of attributes that contain weights or nodes, which are digested separately."""


def identities(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the model's identity, and the identities of the models that it was made from."""
    made_of = (each.value.split(",") for each in model.metadata_props if each.key == MADE_OF)
    own = f"{_digest(_operators(model))}-{_digest(_weights(model))}"
    return (own, *(name for names in made_of for name in names))


def remember(model: onnx.ModelProto, made_of: Iterable[str]) -> None:
    """Write the `identities` of the models that a model was made from into its metadata."""
    found = [each for each in model.metadata_props if each.key == MADE_OF]
    entry = found[0] if found else model.metadata_props.add(key=MADE_OF)
    entry.value = ",".join(made_of)


def difference(mine: Iterable[str], theirs: Iterable[str]) -> str:
    """Return what differs between two models' `identities`; "" if they share one, or have none."""
    ours, others = set(mine), set(theirs)
    if not ours or not others or ours & others:
        return ""
    operators, same = ({name.partition("-")[0] for name in each} for each in (ours, others))
    return "other weights" if operators & same else "other operators"


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()[:_DIGITS]


def _operators(model: onnx.ModelProto) -> Iterable[bytes]:
    yield repr(sorted((each.domain, each.version) for each in model.opset_import)).encode()
    yield repr([value.name for value in (*model.graph.input, *model.graph.output)]).encode()
    for node in model_nodes(model):
        yield repr((node.domain, node.op_type, [*node.input], [*node.output])).encode()
        for each in sorted(node.attribute, key=lambda attribute: str(attribute.name)):
            yield repr((each.name, each.type)).encode()
            if each.type not in _ELSEWHERE:
                yield each.SerializeToString(deterministic=True)


def _weights(model: onnx.ModelProto) -> Iterable[bytes]:
    for tensor in all_tensors(model):
        yield repr((tensor.name, tensor.data_type, [*tensor.dims])).encode()
        if is_stored(tensor) or tensor.HasField("raw_data"):
            yield elements_digest(bytes_of_tensor(tensor))
        else:
            yield tensor.SerializeToString(deterministic=True)
