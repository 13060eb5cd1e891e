"""The operators of ONNX Runtime's own domain that have converters, in numpy."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array

_EPSILON = 1e-12  # the default epsilon of these operators, added to a variance


def _normalised(x: Array, gain: Array, shift: Array | None, epsilon: float | None) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    y = centred / np.sqrt(variance + x.dtype.type(epsilon or _EPSILON)) * gain
    return np.asarray(y if shift is None else y + shift)


class EmbedLayerNormalization(OpRun):  # type: ignore[misc]
    """Layer normalisation of the sum of the embeddings of words, positions and segments."""

    op_domain = "com.microsoft"

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
