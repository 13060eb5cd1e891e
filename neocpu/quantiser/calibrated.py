"""A calibrated model: a grid for each tensor, and integers for each layer.

The errors that rounded weights make in a layer's sums are corrected. ``weights``: the loss of the
weights, times the mean of each input channel, is added to the bias (Banner et al., NeurIPS 2019;
Nagel et al., ICCV 2019, §4.2). ``mean-variance``: scales are widened to restore the weights'
variance, and the shift of their mean is added to the bias (Finkelstein et al., "Fighting
Quantization Bias With Bias"; Banner et al., §3). ``activations``: after the first correction, both
models run. The mean difference of each output channel that remains is added to the bias, if that
brings the outputs nearer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import onnx

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.progress import ProgressCallback
from neocpu.quantiser.float_graph import FloatGraph, Layer
from neocpu.quantiser.observation import Samples, VisibleModel, observe
from neocpu.quantiser.qdq import StoredLayer, TensorGrid, write_qdq
from neocpu.quantiser.quantise_options import AUTO, QuantiseOptions
from neocpu.quantiser.ranges import METHODS, Array, Distribution, Rounding
from neocpu.quantiser.sensitivity import choose_methods
from neocpu.quantiser.stored_tensors import Stored, store

_BIAS_LIMIT: Final = 2**29  # of a stored bias: products and corrections are added in 32 bits, too


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """A model with all data that are needed to write it in 8 bits, whole or in part."""

    graph: FloatGraph
    seen: Mapping[str, Distribution]  # distributions of the graph's tensors
    methods: Mapping[str, str]  # method by which each tensor's range was found
    grids: Mapping[str, TensorGrid]  # grids of the graph's tensors
    layers: Mapping[str, StoredLayer]  # integers of the layers, by the names of the layers' results

    def written(self) -> onnx.ModelProto:
        return self._written(self.graph.tensors, self.layers)

    def written_with(self, results: Collection[str]) -> onnx.ModelProto:
        """Return the model with these layers in 8 bits; of dense layers, only the weights."""
        layers = {name: self.layers[name] for name in results}
        return self._written(self.tensors_of(results), layers)

    def tensors_of(self, results: Collection[str]) -> set[str]:
        chosen = (layer for layer in self.graph.layers if layer.result in results)
        return {layer.data for layer in chosen if layer.node.op_type == "Conv"}

    def _written(
        self, tensors: Collection[str], layers: Mapping[str, StoredLayer]
    ) -> onnx.ModelProto:
        grids = {name: self.grids[name] for name in tensors}
        kept = {name: grids[of] for name, of in self.graph.kept.items() if of in grids}
        return write_qdq(self.graph, grids | kept, layers)


def calibrate(
    graph: FloatGraph,
    original: VisibleModel,
    samples: Samples,
    how: QuantiseOptions,
    threads: int | None,
    on_progress: ProgressCallback,
) -> Calibrated:
    """Run a model on calibration data, and choose grids and integers. ``graph.tensors`` are visible
    in ``original``. Raises UsageError: a tensor for 16 bits does not exist, or data are infinite.
    """
    for name in how.wide:
        if name not in graph.tensors:
            hint = did_you_mean(name, graph.tensors)
            raise UsageError(f"no quantised tensor is called '{name}'{hint}")
    seen = observe(original, graph.tensors, samples, on_progress)
    methods: dict[str, str] = dict.fromkeys(graph.tensors, how.method)
    if how.method == AUTO:
        methods = choose_methods(graph, seen, how, samples, threads, on_progress)
    grids = {name: _grid(seen[name], methods[name], how, name) for name in graph.tensors}
    layers = {layer.result: _stored(graph, layer, seen, grids, how) for layer in graph.layers}
    return Calibrated(graph, seen, methods, grids, layers)


def _grid(seen: Distribution, method: str, how: QuantiseOptions, name: str) -> TensorGrid:
    bits = 16 if name in how.wide else 8
    rounding = Rounding(2**bits - 1, how.symmetric, how.percentile)
    found = METHODS[method](seen, rounding)
    scale, zero = found.steps(rounding.levels, symmetric=how.symmetric)
    return TensorGrid(scale, zero, bits)


def _stored(
    graph: FloatGraph,
    layer: Layer,
    seen: Mapping[str, Distribution],
    grids: Mapping[str, TensorGrid],
    how: QuantiseOptions,
) -> StoredLayer:
    weights = layer.outputs_first(graph.initializers[layer.weights])
    bias = None if layer.bias is None else graph.initializers[layer.bias]
    least = 0.0 if bias is None else np.abs(bias) / grids[layer.data].scale / _BIAS_LIMIT
    stored = store(
        weights,
        per_channel=how.per_channel,
        products=how.int16_sums,
        least=least,
        depthwise=layer.groups > 1 and weights.shape[1] == 1,
    )
    numbers = StoredLayer(stored, bias)
    if how.correction in ("weights", "activations"):
        return correct_by_weights(layer, weights, numbers, seen[layer.data])
    if how.correction == "mean-variance":
        return keep_variance(layer, weights, numbers, seen[layer.data])
    return numbers


_LEAST_RATIO, _MOST_RATIO = 0.9, 1.1  # of standard deviations: beyond, rounding is not the cause


def correct_by_weights(
    layer: Layer, weights: Array, numbers: StoredLayer, seen: Distribution
) -> StoredLayer:
    """Return a layer whose bias makes up for the mean error of its weights, outputs first."""
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
    per_input = weights.reshape(*weights.shape[:2], -1).sum(axis=2)
    groups = len(means) // weights.shape[1]
    spread = np.repeat(means.reshape(groups, -1), len(weights) // groups, axis=0)
    found: Array = (per_input * spread).sum(axis=1)
    return found


def _moved(numbers: StoredLayer, by: Array) -> StoredLayer:
    bias = np.zeros(len(by)) if numbers.bias is None else numbers.bias
    return replace(numbers, bias=(bias + by).astype(np.float32))
