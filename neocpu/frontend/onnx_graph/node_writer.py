"""Nodes and constants that are written into a graph, under names that it does not have."""

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
    """Nodes and constants that are not yet in a graph; whoever writes them puts them there.

    Attributes
    ----------
    prefix : str
        The first characters of the names of new tensors, with which no other name begins.
    nodes, tensors : list
        The nodes in their order, and the constants.
    origin : str
        The name of the node whose place they take, by which messages call them. Where it is empty,
        each node is called as its first output.
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
        """Write a node whose first output is called ``output``, if that is given; return its name.

        ``others`` are the names of further outputs.
        """
        name = output or f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                op_type, list(inputs), [name, *others], self.origin or name, **attributes
            )
        )
        return name

    def const(self, value: npt.ArrayLike) -> str:
        """Write a constant, equal ones once; return its name. Integers are int64."""
        array = np.asarray(value)
        key = array.tobytes(), str(array.dtype), array.shape
        if key not in self._named:
            self._named[key] = f"{self.prefix}c{len(self.tensors)}"
            contiguous = np.ascontiguousarray(array).reshape(array.shape)
            self.tensors.append(numpy_helper.from_array(contiguous, self._named[key]))
        return self._named[key]
