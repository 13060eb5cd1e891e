"""Loops that the runtime repeats: the kernels before the body and at its end."""

from __future__ import annotations

from tvm import relax

from neocpu.frontend.converters.node import Node, call_kernel, dtype_of, static_shape
from neocpu.schedules.recurrent.counted_loop import (
    Tensor,
    lower_loop_begin,
    lower_loop_element,
    lower_loop_end,
    lower_loop_outer,
)


def loop_begin(node: Node) -> relax.Expr:
    """LoopBegin: the number of the step and the states, as `control_flow.loop_nodes` defines it."""
    tensors, states = _tensors(node), int(node.attrs["states"])
    counted = len(tensors) > states
    kernel = lower_loop_begin(node.string("loop", ""), tensors[:states], counted=counted)
    types = [relax.TensorType((), "int64"), *_types(tensors[:states])]
    return call_kernel(node, "loop_begin", kernel, _given(node), types)


def loop_end(node: Node) -> relax.Expr:
    """LoopEnd: the states' next values, and a row of each further output."""
    tensors = _tensors(node)[1:]  # the first one is the number of the step
    states, limit = int(node.attrs["states"]), int(node.attrs["limit"])
    ways = node.string("backward", "")
    rows, condition = tensors[states:][: len(ways)], tensors[states + len(ways) :]
    kernel = lower_loop_end(
        name=node.string("loop", ""),
        limit=limit,
        states=tensors[:states],
        rows=[(row, way == "1") for row, way in zip(rows, ways, strict=True)],
        condition=condition[0] if condition else None,
    )
    stacked = [Tensor(row.dtype, (limit, *row.shape)) for row in rows]
    types = _types([*tensors[:states], *stacked])
    return call_kernel(node, "loop_end", kernel, _given(node), types)


def loop_element(node: Node) -> relax.Expr:
    """LoopElement: the step's element along an axis."""
    whole, _ = _tensors(node)
    axis, limit = int(node.attrs["axis"]), int(node.attrs["limit"])
    kernel = lower_loop_element(whole, axis, limit, backward=bool(node.attrs["backward"]))
    element = Tensor(whole.dtype, (*whole.shape[:axis], *whole.shape[axis + 1 :]))
    return call_kernel(node, "loop_element", kernel, _given(node), _types([element]))


def loop_outer(node: Node) -> relax.Expr:
    """LoopOuter: an outer value, hidden from passes that would fuse its computation into steps."""
    (tensor,) = _tensors(node)
    return call_kernel(node, "loop_outer", lower_loop_outer(tensor), _given(node), _types([tensor]))


def _given(node: Node) -> list[relax.Expr]:
    return [each for each in node.inputs if each is not None]


def _tensors(node: Node) -> list[Tensor]:
    return [Tensor(dtype_of(each), static_shape(each)) for each in _given(node)]


def _types(tensors: list[Tensor]) -> list[relax.Type]:
    return [relax.TensorType(tensor.shape, tensor.dtype) for tensor in tensors]
