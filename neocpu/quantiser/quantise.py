"""Quantising a float32 model: calibrate, choose ranges, round weights, correct, write, measure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from neocpu.compilation.read_model import ModelLike, load_for_import
from neocpu.foundation.files import replacing
from neocpu.foundation.progress import ProgressCallback, silent
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.quantiser.calibrated import Calibrated, calibrate, correct_by_activations
from neocpu.quantiser.calibration import Source, read_samples
from neocpu.quantiser.equalisation import equalise
from neocpu.quantiser.float_graph import float_graph
from neocpu.quantiser.observation import Comparison, compare_models, signal_to_noise, visible
from neocpu.quantiser.quantisation_report import (
    LayerReport,
    QuantisationReport,
    TensorReport,
    constant_notes,
)
from neocpu.quantiser.quantise_options import QuantiseOptions


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedModel:
    """A model in QDQ form, and the report on it."""

    proto: onnx.ModelProto  # with the shapes that it was calibrated with
    report: QuantisationReport

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ONNX file: either all of it appears or nothing does.

        Raises UsageError, ArtifactError: the folder is missing or read-only, or the disk is full.
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
        A model that `neocpu.compile` takes.
    calibration : str, path, array, mapping or iterable
        A folder of pictures, an ``.npz`` file or ``loader.py:function``; an array whose first axis
        is samples, arrays by input name, or samples one by one.
    options : QuantiseOptions, optional
    shapes, batch
        Shapes of inputs with dynamic dimensions, in the form that `neocpu.compile` takes.
    threads : int, optional
        The number of threads that run the model.

    Raises
    ------
    ModelError, UnsupportedError, UsageError
    """
    how, tell = options or QuantiseOptions(), on_progress or silent
    loaded = load_for_import(model, InputShapes.parse(shapes, batch))
    graph = float_graph(loaded, how.exclude)
    if how.equalise:
        graph = equalise(graph)
    samples = read_samples(calibration, graph.inputs, how.samples, how.pictures)
    results = [layer.result for layer in graph.layers]
    outputs = graph.compared

    with visible(graph.proto, outputs, [*graph.tensors, *results], threads) as original:

        def compared(calibrated: Calibrated) -> tuple[Calibrated, Comparison]:
            with visible(calibrated.written(), outputs, results, threads) as rounded:
                found = compare_models((original, rounded), outputs, results, samples, tell)
                return calibrated, found

        made, found = compared(calibrate(graph, original, samples, how, threads, tell))
        applied: str = how.correction
        if how.correction == "activations":
            wanted, means = found.wanted_means, found.found_means
            moved = correct_by_activations(graph, made.layers, wanted, means)
            other, corrected = compared(replace(made, layers=moved))
            if corrected.worst > found.worst:
                made, found = other, corrected
            else:
                applied = "weights (activations made it no better)"
    return QuantisedModel(made.written(), _report(made, found, len(samples), applied))


def _report(
    made: Calibrated, found: Comparison, samples: int, correction: str
) -> QuantisationReport:
    graph, seen = made.graph, made.seen
    tensors = tuple(
        TensorReport(name, made.grids[name], seen[name].low, seen[name].high, made.methods[name])
        for name in graph.tensors
    )
    described = []
    for layer in graph.layers:
        given = layer.outputs_first(graph.initializers[layer.weights])
        noise = signal_to_noise([given], [made.layers[layer.result].weights.real])
        decibels = found.decibels[layer.result]
        described.append(LayerReport(layer.name, layer.node.op_type, noise, decibels))
    return QuantisationReport(
        samples=samples,
        tensors=tensors,
        layers=tuple(described),
        outputs={name: found.decibels[name] for name in graph.compared},
        agreement=found.agreement,
        correction=correction,
        notes=constant_notes([name for name in graph.tensors if seen[name].is_constant]),
        distributions=dict(seen),
    )
