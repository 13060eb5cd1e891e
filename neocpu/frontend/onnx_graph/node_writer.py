"""Nodes and constants under new names, to be added to a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper


@dataclass(slots=True)
class NodeWriter:
    """New nodes and constants; the caller adds them to a graph.

    No name there begins with ``prefix``. Messages call the nodes ``origin``, the node that they
    replace; without one, each has the name of its first output.
    """

    prefix: str
    origin: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)
    _named: dict[tuple[bytes, str, tuple[int, ...]], str] = field(default_factory=dict)

    def op(
        self,
        op_type: str,
        *inputs: str,
        output: str = "",
        others: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """Write a node; return its first output, ``output`` if set; ``others`` are further ones."""
        name = output or f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                op_type, list(inputs), [name, *others], self.origin or name, **attributes
            )
        )
        return name

    def const(self, value: npt.ArrayLike) -> str:
        """Write a constant, or reuse an equal one; return its name. Integers are int64."""
        array = np.asarray(value)
        key = array.tobytes(), str(array.dtype), array.shape
        if key not in self._named:
            self._named[key] = f"{self.prefix}c{len(self.tensors)}"
            contiguous = np.ascontiguousarray(array).reshape(array.shape)
            self.tensors.append(numpy_helper.from_array(contiguous, self._named[key]))
        return self._named[key]
