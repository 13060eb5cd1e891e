"""Corrections of the errors that rounded weights make in a layer's sums.

``weights``: the loss of the weights, times the mean of each input channel, is added to the bias
(Banner et al., NeurIPS 2019; Nagel et al., ICCV 2019, §4.2). ``mean-variance``: scales are widened
to restore the weights' variance, and the shift of their mean is added to the bias (Finkelstein et
al., "Fighting Quantization Bias With Bias"; Banner et al., §3). ``activations``: after the first
correction, both models run. The mean difference of each output channel that remains is added to the
bias, if that brings the outputs nearer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from neocpu.quantiser.float_graph import FloatGraph, Layer
from neocpu.quantiser.histogram import Array, Distribution
from neocpu.quantiser.qdq import StoredLayer
from neocpu.quantiser.stored_tensors import Stored

_LEAST_RATIO, _MOST_RATIO = 0.9, 1.1
"""Limits on the ratio of standard deviations: beyond them, the cause is not rounding."""


def correct_by_weights(
    layer: Layer, weights: Array, numbers: StoredLayer, seen: Distribution
) -> StoredLayer:
    """Return a layer whose bias makes up for the mean error of its rounded weights. The float32
    ``weights`` have the output channels first. `seen` is the distribution of the values that the
    layer reads.
    """
    if layer.node.op_type == "MatMul" or seen.means is None:
        return numbers
    shift = numbers.weights.real - weights
    return _moved(numbers, -_mean_output(shift, seen.means))


def keep_variance(
    layer: Layer, weights: Array, numbers: StoredLayer, seen: Distribution
) -> StoredLayer:
    """Return a layer whose weights have the mean and the variance of the float32 weights."""
    stored = numbers.weights
    if layer.node.op_type == "MatMul" or seen.means is None or stored.scale.size != len(weights):
        return numbers
    axes = tuple(range(1, weights.ndim))
    before, after = weights.std(axis=axes), stored.real.std(axis=axes)
    ratio = np.where(after > 0, before / np.where(after > 0, after, 1), 1.0)
    ratio = np.clip(ratio, _LEAST_RATIO, _MOST_RATIO)
    widened = replace(numbers, weights=Stored(stored.values, (stored.scale * ratio).astype("f4")))
    lost = weights.mean(axis=axes) - widened.weights.real.mean(axis=axes)
    mean = np.broadcast_to(lost.reshape(-1, *[1] * len(axes)), weights.shape)
    return _moved(widened, _mean_output(mean, seen.means))


def correct_by_activations(
    graph: FloatGraph,
    layers: Mapping[str, StoredLayer],
    wanted: dict[str, Array],
    found: dict[str, Array],
) -> dict[str, StoredLayer]:
    """Return the layers with biases moved by the difference of their mean outputs."""
    corrected = dict(layers)
    for layer in graph.layers:
        name = layer.result
        if layer.node.op_type != "MatMul" and name in wanted:
            corrected[name] = _moved(layers[name], wanted[name] - found[name])
    return corrected


def _mean_output(weights: Array, means: Array) -> Array:
    """Return the outputs of a layer of ``weights`` for its input's mean, ignoring borders."""
    per_input = weights.reshape(*weights.shape[:2], -1).sum(axis=2)
    groups = len(means) // weights.shape[1]
    spread = np.repeat(means.reshape(groups, -1), len(weights) // groups, axis=0)
    found: Array = (per_input * spread).sum(axis=1)
    return found


def _moved(numbers: StoredLayer, by: Array) -> StoredLayer:
    bias = np.zeros(len(by)) if numbers.bias is None else numbers.bias
    return replace(numbers, bias=(bias + by).astype(np.float32))
