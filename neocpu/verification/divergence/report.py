"""The report of a comparison, tensor by tensor, which ``neocpu compare --json`` prints."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import json_number, plural
from neocpu.verification.divergence.tensor_errors import Where

MOST_NAMED: Final = 4
"""Number of operators before a wrong one that its line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTensor:
    """A tensor that both sides have.

    Attributes
    ----------
    operator : str
        The plan's operator that makes it, or the kernel if the plan has no operator.
    precision : str
        Numbers that the operator computes with.
    nodes : tuple of str
        Nodes of the model between it and the compared tensors before it: the computation of the
        operator and of others that are fused with it.
    error : float
        Norm-wise error in a normal run, which grows from operator to operator.
    own_error : float
        Norm-wise error if all compared tensors before it are exact: that of this operator
        alone.
    bound : float
        Bound of its own error.
    where : Where or None
        Places of its own error; None if that is within its bound, or if numbers of rows differ.
    before : tuple of str
        Operators before it whose results it depends on, directly or through each other, and
        that are not compared themselves.
    """

    name: str
    shape: tuple[int, ...]
    operator: str
    kernel: str
    precision: str
    nodes: tuple[str, ...]
    error: float
    own_error: float
    bound: float
    where: Where | None = None
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        made = f" ({', '.join(self.nodes)})" if self.nodes else ""
        more = len(self.before) - MOST_NAMED
        named = [*self.before[:MOST_NAMED], *([plural(more, "other")] if more > 0 else [])]
        others = f", or {' or '.join(named)} before it," if named else ""
        return (
            f"operator {self.operator}{others} makes '{self.name}'{made} wrong: on exact inputs it "
            f"errs by {self.own_error:.2g} of its norm, more than the bound of {self.bound:.2g}"
        )

    @property
    def kept(self) -> bool:
        """Whether its own error is within its bound."""
        return self.own_error <= self.bound

    @property
    def excess(self) -> float:
        """Its own error as a multiple of its bound."""
        return self.own_error / self.bound if self.bound else math.inf * (self.own_error > 0)

    def to_json(self) -> JsonObject:
        """Return the JSON form; null stands for infinity."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "operator": self.operator,
            "before": list(self.before),
            "kernel": self.kernel,
            "precision": self.precision,
            "nodes": list(self.nodes),
            "error": json_number(self.error),
            "own_error": json_number(self.own_error),
            "bound": json_number(self.bound),
            "kept": self.kept,
            "where": None if self.where is None else self.where.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The differences of an artifact's tensors from a model's, or from another artifact's.

    The source of the expected tensors is ``numpy in float64``, or the other artifact, which has
    ``model_tensors``. Compared ones are in the order in which the artifact makes them.
    """

    artifact: str
    other: str
    source: str
    inputs: str
    tensors: tuple[ComparedTensor, ...]
    model_tensors: int

    @cached_property
    def first(self) -> ComparedTensor | None:
        """The first tensor whose own error exceeds its bound."""
        return next((tensor for tensor in self.tensors if not tensor.kept), None)

    @cached_property
    def histogram(self) -> tuple[tuple[int, int], ...]:
        """Number of operators by the power of ten that bounds their errors, relative to bounds."""
        counts = Counter(_decade(tensor.excess) for tensor in self.tensors)
        return tuple((power, counts[power]) for power in range(_LEAST, _MOST + 1))

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "artifact": self.artifact,
            "other": self.other,
            "source": self.source,
            "inputs": self.inputs,
            "model_tensors": self.model_tensors,
            "first": None if self.first is None else self.first.to_json(),
            "broken": sum(not tensor.kept for tensor in self.tensors),
            "histogram": [
                {"up_to": 10.0**power, "operators": count} for power, count in self.histogram
            ],
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


_LEAST, _MOST = -4, 5


def _decade(excess: float) -> int:
    """Return the least power of ten of the histogram that is not below a multiple."""
    if not excess > 10.0**_LEAST:
        return _LEAST
    return _MOST if math.isinf(excess) else min(_MOST, math.ceil(math.log10(excess)))
