"""An ONNX node as converters see it: Relax inputs, attributes and static shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from neocpu.ir.expressions import OPAQUE
from neocpu.ir.row_analysis.kernel_rows import KernelRows


@dataclass(frozen=True, slots=True)
class _Emitting:
    bb: relax.BlockBuilder

    def __getattr__(self, name: str) -> Callable[..., relax.Expr]:
        make = getattr(relax.op, name)
        return lambda *args, **options: self.bb.normalize(make(*args, **options))


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node during import."""

    bb: relax.BlockBuilder
    inputs: Sequence[relax.Expr]  # None for an omitted one
    attrs: Mapping[str, Any]  # strings are bytes, lists are tuples
    outputs: tuple[str, ...]  # empty for omitted ones
    opset: int

    @property
    def op(self) -> Any:
        """Relax's operators; each returns its call as `emit` does."""
        return _Emitting(self.bb)

    @property
    def data(self) -> relax.Expr:
        return self.inputs[0]

    def optional(self, index: int) -> relax.Expr | None:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> np.ndarray | None:
        """Return a constant input's value, None if it is omitted; a `ValueError` if it is no
        constant."""
        value = self.optional(index)
        if value is None:
            return None
        array = constant_value(value)
        if array is None:
            raise ValueError(f"input {index} must be a constant")
        return array

    def required(self, index: int) -> np.ndarray:
        """Return the value of a constant input that no model omits."""
        array = self.constant(index)
        assert array is not None
        return array

    def shape(self, index: int = 0) -> tuple[int, ...]:
        return static_shape(self.inputs[index])

    def string(self, name: str, default: str) -> str:
        """Return a string attribute; the default if it is missing or empty."""
        value = self.attrs.get(name) or default
        return value.decode() if isinstance(value, bytes) else value

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        return [int(value) for value in self.attrs.get(name, default)]

    def steps(self, rank: int) -> tuple[list[int], list[int]]:
        """Return the strides and dilations of windows with so many axes."""
        return self.ints("strides", [1] * rank), self.ints("dilations", [1] * rank)

    def number(self, name: str, default: float) -> float:
        return float(self.attrs.get(name, default))

    def flag(self, name: str, default: int = 0) -> bool:
        return bool(self.attrs.get(name, default))

    def axis(self, default: int) -> int:
        """Return the attribute ``axis``, counted from the front of the first input's shape."""
        return positive_axis(int(self.attrs.get("axis", default)), len(self.shape()))

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Return an expression with its type inferred and its nested calls bound."""
        return self.bb.normalize(expr)

    def bind(self, expr: relax.Expr) -> relax.Expr:
        """Bind an expression to a variable, so that several uses compute it once."""
        return self.bb.emit(expr)

    def call(
        self,
        name: str,
        kernel: Any,
        args: Sequence[relax.Expr],
        results: Sequence[tuple[Sequence[int], str]],
        rows: KernelRows | None = None,
    ) -> relax.Expr:
        """Return the call of a kernel that later passes neither look into nor fuse with anything.

        ``results`` are shapes and element types. ``rows`` are the independent rows of a batch; None
        if the kernel may mix rows.
        """
        if rows is not None:
            kernel = rows.marked(kernel)
        function = self.bb.add_func(kernel.with_attr("op_pattern", OPAQUE), name)
        types = [relax.TensorType(shape, dtype) for shape, dtype in results]
        return self.emit(relax.call_tir(function, relax.Tuple(list(args)), types))

    def convert_by_tvm(self, op_type: str, inputs: Sequence[relax.Expr]) -> relax.Expr:
        """Return the conversion of this node by TVM's importer, with other inputs."""
        converter = onnx_frontend._get_convert_map()[op_type].get_converter(self.opset)
        given = onnx_frontend.onnx_input(inputs)
        return converter(self.bb, given, dict(self.attrs), [{}, {}])


def positive_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front; a `ValueError` if there is none."""
    if not -rank <= axis < rank:
        raise ValueError(f"its axis {axis} is out of range for {rank} dimensions")
    return axis % rank


def around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Return the number of elements before an axis, along it and after it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def static_shape(expr: relax.Expr) -> tuple[int, ...]:
    """Return an expression's shape; a `ValueError` if it depends on data."""
    shape = expr.ty.shape
    if shape is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in shape):
        raise ValueError("an input's shape depends on the data")
    return tuple(int(extent) for extent in shape)


def dtype_of(expr: relax.Expr) -> str:
    """Return an expression's element type as a numpy name."""
    return str(expr.ty.dtype.dtype)


def constant_value(expr: relax.Expr) -> np.ndarray | None:
    """Return a Relax constant's value, or None for anything else."""
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def depends_on_inputs(node: Node, expr: relax.Expr) -> bool:
    """Return whether a value depends on inputs, not on constants alone."""
    waiting: list[Any] = [expr]
    seen: set[relax.Var] = set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, relax.Var) and each not in seen:
            seen.add(each)
            bound = node.bb.lookup_binding(each)
            if bound is None:
                return True
            waiting.append(bound)
        elif isinstance(each, tvm.ir.Call):
            waiting.extend(each.args)
        elif isinstance(each, relax.Tuple):
            waiting.extend(each.fields)
        elif isinstance(each, relax.TupleGetItem):
            waiting.append(each.tuple_value)
    return False


def const(array: np.ndarray) -> relax.Expr:
    """Return a Relax constant of an array's own type (`relax.const` narrows int64)."""
    return relax.const(array, str(array.dtype))


def scalar(value: float, like: relax.Expr) -> relax.Expr:
    """Return a scalar constant of another expression's element type."""
    return const(np.asarray(value, dtype_of(like)))


def per_channel(expr: relax.Expr, rank: int) -> relax.Expr:
    """Reshape a vector of C values to (C, 1, ..., 1), for broadcasting; a constant stays one."""
    shape = [1, -1] + [1] * (rank - 2)
    array = constant_value(expr)
    if array is None:
        return relax.op.reshape(expr, shape)
    return const(array.reshape(shape))


Converters: TypeAlias = Mapping[str, Callable[[Node], relax.Expr]]
"""Functions by the operators that they convert."""
