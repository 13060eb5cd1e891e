"""Quantising a float32 model: calibrate, choose ranges, round weights, correct, write, measure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx

from neocpu.compiler import ModelLike, load_for_import
from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.files import replacing
from neocpu.foundation.progress import ProgressCallback, silent
from neocpu.input_shapes import InputShapes
from neocpu.quantiser.calibration import Source, read_samples
from neocpu.quantiser.comparison import Comparison, compare_models
from neocpu.quantiser.correction import (
    correct_by_activations,
    correct_by_weights,
    keep_variance,
)
from neocpu.quantiser.equalisation import equalise
from neocpu.quantiser.float_graph import FloatGraph, float_graph
from neocpu.quantiser.histogram import Distribution
from neocpu.quantiser.observation import observe, signal_to_noise, visible
from neocpu.quantiser.qdq import StoredLayer, TensorGrid, write_qdq
from neocpu.quantiser.quantisation_report import (
    LayerReport,
    QuantisationReport,
    TensorReport,
    constant_notes,
)
from neocpu.quantiser.quantise_options import AUTO, QuantiseOptions
from neocpu.quantiser.ranges import METHODS, Rounding
from neocpu.quantiser.sensitivity import choose_methods
from neocpu.quantiser.stored_tensors import store

_BIAS_LIMIT: Final = 2**29
"""Of a bias as it is stored: products and corrections are added to it in the same 32 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedModel:
    """A model in QDQ form, and how it came about.

    Attributes
    ----------
    proto : onnx.ModelProto
        Of the shapes it was calibrated with.
    report : QuantisationReport
    """

    proto: onnx.ModelProto
    report: QuantisationReport

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ONNX file: all of it appears or nothing does.

        Raises
        ------
        UsageError, ArtifactError
            If the folder is missing or read-only, or the disk is full.
        """
        data = self.proto.SerializeToString()
        with replacing(Path(path), len(data)) as stream:
            stream.write(data)


def quantize(
    model: ModelLike,
    calibration: Source,
    options: QuantiseOptions | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    threads: int | None = None,
    on_progress: ProgressCallback | None = None,
) -> QuantisedModel:
    """Quantise a float32 model to 8 bits, as a standard ONNX model in QDQ form.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or str
        As `neocpu.compile` takes it.
    calibration : str, path, array, mapping or iterable
        A folder of pictures, an ``.npz`` file or ``loader.py:function``; an array whose first axis
        is samples, arrays by input name, or samples one by one.
    options : QuantiseOptions, optional
    shapes, batch
        Of inputs with dynamic dimensions, as `neocpu.compile` takes them.
    threads : int, optional
        To run the model with.

    Raises
    ------
    ModelError, UnsupportedError, UsageError
    """
    how, tell = options or QuantiseOptions(), on_progress or silent
    loaded = load_for_import(model, InputShapes.parse(shapes, batch))
    graph = float_graph(loaded, how.exclude)
    if how.equalise:
        graph = equalise(graph)
    _check_wide(how.wide, graph)
    samples = read_samples(calibration, graph.inputs, how.samples, how.pictures)
    results = [layer.result for layer in graph.layers]
    outputs = tuple(spec.name for spec in graph.outputs)

    def compared(numbers: Mapping[str, StoredLayer]) -> tuple[onnx.ModelProto, Comparison]:
        proto = write_qdq(graph, grids, numbers)
        with visible(proto, results, threads) as rounded:
            pair = (original, rounded)
            return proto, compare_models(pair, outputs, results, samples, tell)

    with visible(graph.proto, [*graph.tensors, *results], threads) as original:
        seen = observe(original, graph.tensors, samples, tell)
        methods = dict.fromkeys(graph.tensors, how.method)
        if how.method == AUTO:
            methods = choose_methods(graph, seen, how, samples, threads, tell)
        grids = {name: grid_of(seen[name], methods[name], how, name) for name in graph.tensors}
        grids |= {name: grids[of] for name, of in graph.kept.items()}
        layers = _stored(graph, seen, grids, how)
        proto, found = compared(layers)
        applied = how.correction
        if how.correction == "activations":
            moved = correct_by_activations(graph, layers, found.wanted_means, found.found_means)
            other, corrected = compared(moved)
            if corrected.worst > found.worst:
                proto, found, layers = other, corrected, moved
            else:
                applied = "weights (activations made it no better)"
    report = _report(graph, seen, grids, methods, layers, found, len(samples), applied)
    return QuantisedModel(proto, report)


def grid_of(seen: Distribution, method: str, how: QuantiseOptions, name: str) -> TensorGrid:
    """Return the grid that a method finds for a tensor."""
    bits = 16 if name in how.wide else 8
    rounding = Rounding(2**bits - 1, how.symmetric, how.percentile)
    found = METHODS[method](seen, rounding)
    scale, zero = found.steps(rounding.levels, symmetric=how.symmetric)
    return TensorGrid(scale, zero, bits)


def _check_wide(wide: Sequence[str], graph: FloatGraph) -> None:
    for name in wide:
        if name not in graph.tensors:
            hint = did_you_mean(name, graph.tensors)
            raise UsageError(f"no quantised tensor is called '{name}'{hint}")


def _stored(
    graph: FloatGraph,
    seen: Mapping[str, Distribution],
    grids: Mapping[str, TensorGrid],
    how: QuantiseOptions,
) -> dict[str, StoredLayer]:
    """Return each layer's weights as integers, its bias corrected by what they alone say."""
    found = {}
    for layer in graph.layers:
        weights = layer.outputs_first(graph.initializers[layer.weights])
        bias = None if layer.bias is None else graph.initializers[layer.bias]
        least = 0.0 if bias is None else np.abs(bias) / (grids[layer.data].scale * _BIAS_LIMIT)
        stored = store(weights, per_channel=how.per_channel, products=how.int16_sums, least=least)
        numbers = StoredLayer(stored, bias)
        if how.correction in ("weights", "activations"):
            numbers = correct_by_weights(layer, weights, numbers, seen[layer.data])
        elif how.correction == "mean-variance":
            numbers = keep_variance(layer, weights, numbers, seen[layer.data])
        found[layer.result] = numbers
    return found


def _report(
    graph: FloatGraph,
    seen: Mapping[str, Distribution],
    grids: Mapping[str, TensorGrid],
    methods: Mapping[str, str],
    layers: Mapping[str, StoredLayer],
    found: Comparison,
    samples: int,
    correction: str,
) -> QuantisationReport:
    tensors = tuple(
        TensorReport(name, grids[name], seen[name].low, seen[name].high, methods[name])
        for name in graph.tensors
    )
    described = tuple(
        LayerReport(
            layer.name,
            layer.node.op_type,
            signal_to_noise(
                [layer.outputs_first(graph.initializers[layer.weights])],
                [layers[layer.result].weights.real],
            ),
            found.decibels[layer.result],
        )
        for layer in graph.layers
    )
    return QuantisationReport(
        samples,
        tensors,
        described,
        {spec.name: found.decibels[spec.name] for spec in graph.outputs},
        found.agreement,
        correction,
        constant_notes([name for name in graph.tensors if seen[name].is_constant]),
        dict(seen),
    )
