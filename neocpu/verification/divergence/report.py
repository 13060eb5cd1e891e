"""What a comparison found, tensor by tensor: what ``neocpu compare --json`` prints."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from neocpu.foundation.units import json_number, plural
from neocpu.verification.divergence.tensor_errors import Where

MOST_NAMED: Final = 4
"""Of operators before a wrong one, that its line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTensor:
    """A tensor that both sides have.

    Attributes
    ----------
    name : str
        As the model calls it.
    shape : tuple of int
    operator : str
        The plan's that makes it, or the kernel where the plan has none.
    kernel : str
        That writes it.
    precision : str
        What the operator computes with.
    nodes : tuple of str
        The model's that lie between it and the tensors before it that were compared: what the
        operator, and any fused with it, computes.
    error : float
        Norm-wise, as it comes out of a run: it grows from operator to operator.
    own_error : float
        The same where all tensors before it are exact: what this operator alone does.
    bound : float
        What that may be.
    where : Where or None
        Where its own error is; None if that is within its bound, or not as many rows count.
    before : tuple of str
        Operators whose results it reads, or others of these, and that are not compared themselves.
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
            f"operator {self.operator}{others} makes '{self.name}'{made} wrong: of exact inputs it "
            f"errs by {self.own_error:.2g} of its norm, and may by {self.bound:.2g}"
        )

    @property
    def kept(self) -> bool:
        """Whether its own error is within its bound."""
        return self.own_error <= self.bound

    @property
    def excess(self) -> float:
        """Its own error as a multiple of its bound."""
        return self.own_error / self.bound if self.bound else math.inf * (self.own_error > 0)

    def to_json(self) -> dict[str, Any]:
        """JSON form; null stands for infinity."""
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
    """How an artifact's tensors differ from a model's, or from another artifact's.

    Attributes
    ----------
    artifact, other : str
        What was compared with what.
    source : str
        What the truth is from: ``numpy in float64``, or the other artifact.
    inputs : str
        What it was run on.
    tensors : tuple of ComparedTensor
        In the order in which the artifact makes them.
    model_tensors : int
        How many the other side has.
    """

    artifact: str
    other: str
    source: str
    inputs: str
    tensors: tuple[ComparedTensor, ...]
    model_tensors: int

    @cached_property
    def first(self) -> ComparedTensor | None:
        """The first one that breaks its own bound."""
        return next((tensor for tensor in self.tensors if not tensor.kept), None)

    @cached_property
    def histogram(self) -> tuple[tuple[int, int], ...]:
        """How many operators err by up to ten to a power of their bounds, and more than a tenth."""
        counts = Counter(_decade(tensor.excess) for tensor in self.tensors)
        return tuple((power, counts[power]) for power in range(_LEAST, _MOST + 1))

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
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
    """Return the power of ten that a multiple is at most, of those that a histogram has."""
    if not excess > 10.0**_LEAST:
        return _LEAST
    return _MOST if math.isinf(excess) else min(_MOST, math.ceil(math.log10(excess)))
