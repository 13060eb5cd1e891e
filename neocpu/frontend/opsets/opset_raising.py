"""Raise a model to a newer opset without changing its results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx

from neocpu.foundation.errors import NeoCPUError, UnsupportedError
from neocpu.frontend.onnx_graph.weightless_model import convert_version, inline_functions
from neocpu.frontend.opsets.old_forms import (
    anchor_old_resizes,
    channel_slopes,
    flatten_old_hardmax,
    spread_batch_norms,
)
from neocpu.frontend.rewrites import uses
from neocpu.frontend.shapes.extents import refuse_axes
from neocpu.frontend.source import first_line

IR_VERSION = 10


def opset_of(model: onnx.ModelProto) -> int:
    """Return the model's version of the standard operator set."""
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    return int(versions[0]) if versions else 1


def raise_opset(proto: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Return the model in opset ``target``, or a newer one if it has that; ``proto`` is changed.

    Raises
    ------
    UnsupportedError
        An operator cannot be raised.
    """
    if opset_of(proto) < 7:
        with named("infer the shapes of the model"):
            channel_slopes(proto)
    if opset_of(proto) < 9 and uses(proto, "BatchNormalization"):
        spread_batch_norms(proto)
    if opset_of(proto) < 13 and uses(proto, "Hardmax", "LogSoftmax", "Softmax"):
        # Before they are flattened, which would accept an axis after the last one.
        with named("infer the shapes of the model"):
            shaped = onnx.shape_inference.infer_shapes(proto)
        refuse_axes(shaped.graph)
        flatten_old_hardmax(proto)
    if opset_of(proto) < 11 and uses(proto, "Resize", "Upsample"):
        proto = _converted(proto, 11)
        anchor_old_resizes(proto)
    return proto if opset_of(proto) >= target else _converted(proto, target)


def without_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its functions inlined; the same model if it has none."""
    if not proto.functions:
        return proto
    with named("inline the model's functions"):
        return inline_functions(proto)


def _converted(proto: onnx.ModelProto, target: int) -> onnx.ModelProto:
    inlined = without_functions(proto)  # the converter would drop functions
    try:
        raised = convert_version(inlined, target)
    except Exception as error:  # the C++ converter has no exception type of its own
        raise UnsupportedError(
            f"cannot raise the model from opset {opset_of(proto)} to {target}: "
            f"{first_line(error)}; export it again with a newer opset"
        ) from error
    raised.ir_version = IR_VERSION
    return raised


@contextmanager
def named(task: str) -> Iterator[None]:
    """Turn errors of onnx's tools, which have many types, into one that names the task."""
    try:
        yield
    except NeoCPUError:
        raise
    except Exception as error:
        raise UnsupportedError(f"cannot {task}: {first_line(error)}") from error
