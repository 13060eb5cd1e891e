"""Limits of a model, far beyond any that runs on a CPU: a few bytes can ask for any work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import onnx

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.runtime.header import MAX_RANK, MAX_SPECS

MAX_NODES: Final = 50_000
"""Nodes of a graph with inlined functions, including inner graphs. The largest networks have a few
thousand. Importing and planning this many takes a minute."""

MAX_VALUES: Final = MAX_SPECS  # inputs, and likewise outputs: as many as a header can name

MAX_FOLDED_BYTES: Final = 2 << 30
"""Bytes of all constants that a model computes from others: as many as an ONNX file can hold."""

MAX_PARTS: Final = 64
"""Tensors that one kernel concatenates, or splits one into; more take several steps. A kernel's
code, and the time to generate it, grow with their number."""

_COUNTLESS: Final = 10**15

_Function: TypeAlias = tuple[str, str, str]  # the domain, name and overload of a function


def refuse_large_models(model: onnx.ModelProto) -> None:
    """Raise if a graph has too many nodes, inputs or outputs, or a tensor too many dimensions.

    Nodes are counted as if functions were inlined, but without inlining: thirty functions that each
    call the one before twice make a billion nodes. A function that calls itself is a `ModelError`.
    """
    count = _count_nodes(model)
    if count > MAX_NODES:
        inlined = ", its functions inlined," if model.functions else ""
        raise UnsupportedError(
            f"the model{inlined} has {amount(count)} nodes; at most {MAX_NODES} are supported"
        )
    for what, values in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        weights = len(model.graph.initializer) if what == "inputs" else 0
        if len(values) > MAX_VALUES + weights:
            raise UnsupportedError(
                f"the model has {len(values)} {what}; at most {MAX_VALUES} are supported"
            )
    refuse_ranks(
        {
            **{value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input},
            **{tensor.name: len(tensor.dims) for tensor in model.graph.initializer},
        }
    )


def refuse_ranks(ranks: Mapping[str, int], makers: Mapping[str, str] | None = None) -> None:
    """Raise an `UnsupportedError` if a tensor has more dimensions than an artifact supports."""
    for name, rank in ranks.items():
        if rank > MAX_RANK:
            where = (makers or {}).get(name, "the model has tensor")
            raise UnsupportedError(
                f"{where} '{name}' of {rank} dimensions; at most {MAX_RANK} are supported"
            )


class FoldingBudget:
    """Counts the bytes of constants before they are computed, while they are kept."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def spend(self, where: str, name: str, size: int) -> None:
        """Count ``size`` bytes of a tensor that the node ``where`` makes; too many raise."""
        self.release(name)
        self._sizes[name] = size
        self._bytes += size
        if self._bytes > MAX_FOLDED_BYTES:
            raise UnsupportedError(
                f"{where} makes a constant of {amount(size)} bytes; all constants that a "
                f"model computes may take {MAX_FOLDED_BYTES} bytes: use smaller ones, or compute "
                "them from an input"
            )

    def release(self, name: str) -> None:
        """Stop counting a tensor that nothing reads any longer."""
        self._bytes -= self._sizes.pop(name, 0)


def amount(number: int) -> str:
    """Return a number as a text, which is vague from `_COUNTLESS` on."""
    return str(number) if number < _COUNTLESS else "more than 10^15"


def _count_nodes(model: onnx.ModelProto) -> int:
    """Return the number of nodes after inlining; each function is counted once, callees first."""
    calls = {(f.domain, f.name, f.overload): list(_calls(f.node)) for f in model.functions}
    sizes: dict[_Function, int] = {}
    entered: set[_Function] = set()
    stack = list(calls)
    while stack:
        function = stack[-1]
        if function in sizes:
            stack.pop()
            continue
        inner = [callee for callee in calls[function] if callee in calls and callee not in sizes]
        if inner and function in entered:
            raise ModelError(f"function '{function[1]}' calls itself, which ONNX forbids")
        entered.add(function)
        stack += inner
        if not inner:
            size = sum(sizes.get(callee, 1) for callee in calls[function])
            sizes[function] = min(size, _COUNTLESS)
    return sum(sizes.get(callee, 1) for callee in _calls(model.graph.node))


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[_Function]:
    for node in nodes:
        yield node.domain, node.op_type, node.overload
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _calls(graph.node)
