"""The operators of ONNX Runtime's own domain that are imported, in numpy: onnx has none of them."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

from neocpu.reference.operators.fast_operators import error_function

Array: TypeAlias = npt.NDArray[Any]

_EPSILON = 1e-12
"""What these operators add to a variance where the node does not say."""


class _Contrib(OpRun):  # type: ignore[misc]
    op_domain = "com.microsoft"


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + error_function(x * x.dtype.type(math.sqrt(0.5)))))


def _normalised(x: Array, gain: Array, shift: Array | None, epsilon: float | None) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    y = centred / np.sqrt(variance + x.dtype.type(epsilon or _EPSILON)) * gain
    return np.asarray(y if shift is None else y + shift)


class Gelu(_Contrib):
    """``x Φ(x)``."""

    def _run(self, x: Array, **attrs: Any) -> tuple[Array]:
        return (_gelu(x),)


class BiasGelu(_Contrib):
    """``x Φ(x)`` of a sum."""

    def _run(self, x: Array, bias: Array) -> tuple[Array]:
        return (_gelu(x + bias),)


class FastGelu(_Contrib):
    """``x Φ(x)`` of a sum, by a hyperbolic tangent."""

    def _run(self, x: Array, bias: Array | None = None) -> tuple[Array]:
        x = x if bias is None else x + bias
        inner = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x**3)
        return (np.asarray(0.5 * x * (1 + np.tanh(inner))),)


class SkipLayerNormalization(_Contrib):
    """Layer normalisation of a sum, and the sum itself as fourth output."""

    def _run(
        self,
        x: Array,
        skip: Array,
        gain: Array,
        shift: Array | None = None,
        bias: Array | None = None,
        epsilon: float | None = None,
    ) -> tuple[Array, ...]:
        total = x + skip if bias is None else x + skip + bias
        mean = total.mean(axis=-1, keepdims=True)
        spread = 1 / np.sqrt(total.var(axis=-1, keepdims=True) + (epsilon or _EPSILON))
        y = _normalised(total, gain, shift, epsilon)
        return (y, mean, spread, total)[: max(1, len(self.onnx_node.output))]


class EmbedLayerNormalization(_Contrib):
    """Layer normalisation of the sum of what words, positions and segments stand for."""

    def _run(
        self,
        words: Array,
        segments: Array | None,
        word_table: Array,
        position_table: Array,
        segment_table: Array | None = None,
        gain: Array | None = None,
        shift: Array | None = None,
        mask: Array | None = None,
        positions: Array | None = None,
        epsilon: float | None = None,
        mask_index_type: int | None = None,
    ) -> tuple[Array, ...]:
        places = np.arange(words.shape[1])[None] if positions is None else positions
        total = word_table[words] + position_table[places]
        if segments is not None and segment_table is not None:
            total = total + segment_table[segments]
        assert gain is not None
        y = _normalised(total, gain, shift, epsilon)
        counts = np.zeros(len(words), np.int32) if mask is None else mask.sum(axis=1)
        return (y, counts.astype(np.int32), total)[: max(1, len(self.onnx_node.output))]
