"""The error of the outputs when only one tensor, or only one layer's weights, are rounded.

It is measured in a laboratory: the float32 model with extra inputs that decide which tensors are
rounded, to which grids, and which layers add the loss of their rounded weights to their sums. The
laboratory is compiled once, and each question is a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from neocpu.compilation.compiler import compile as compile_model
from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.quantiser.float_graph import FloatGraph, Layer
from neocpu.quantiser.observation import Samples, with_outputs
from neocpu.quantiser.qdq import StoredLayer, TensorGrid
from neocpu.quantiser.quantise_options import QuantiseOptions
from neocpu.quantiser.ranges import METHODS, Array, Distribution, Rounding
from neocpu.runtime.module import Module

SAMPLES: Final = 4  # of calibration, evenly spread: few suffice for a ratio of powers of outputs

_SCALES, _ZEROS, _LEVELS = "neocpu_scales", "neocpu_zeros", "neocpu_levels"
_WEIGHTS = "neocpu_weights"
_LEAST, _ONE = "neocpu_least", "neocpu_one"
_CONSTANTS: Final = {_LEAST: 0.0, _ONE: 1.0}


@dataclass(frozen=True, slots=True, eq=False)
class Laboratory:
    """The compiled model, its samples, and its outputs for them without rounding."""

    module: Module
    tensors: tuple[str, ...]  # names of tensors that can be rounded
    layers: tuple[str, ...]
    samples: Samples
    truth: tuple[dict[str, Array], ...]

    def noise(self, grids: Mapping[str, TensorGrid], rounded: Sequence[str] = ()) -> float:
        """Return outputs' noise relative to their power; `rounded`: layers with rounded weights."""
        found = [self._run(feeds, grids, rounded) for feeds in self.samples]
        power = noise = 0.0
        for wanted, got in zip(self.truth, found, strict=True):
            for name, array in wanted.items():
                scale = float(np.square(array, dtype=np.float64).mean()) or 1.0
                difference = array.astype(np.float64) - got[name]
                noise += float(np.square(difference).mean()) / scale
                power += 1.0
        return noise / power

    def _run(
        self, feeds: Mapping[str, Array], grids: Mapping[str, TensorGrid], rounded: Sequence[str]
    ) -> dict[str, Array]:
        return self.module.run({**feeds, **_settings(self.tensors, self.layers, grids, rounded)})


def _settings(
    tensors: Sequence[str],
    layers: Sequence[str],
    grids: Mapping[str, TensorGrid],
    rounded: Sequence[str],
) -> dict[str, Array]:
    chosen = [grids.get(name) for name in tensors]
    return {
        _SCALES: np.array([0 if grid is None else grid.scale for grid in chosen], np.float32),
        _ZEROS: np.array([0 if grid is None else grid.zero for grid in chosen], np.float32),
        _LEVELS: np.array([0 if grid is None else grid.levels for grid in chosen], np.float32),
        _WEIGHTS: np.array([name in rounded for name in layers], np.float32),
    }


@contextmanager
def laboratory_of(
    graph: FloatGraph, stored: Mapping[str, StoredLayer], samples: Samples, threads: int | None
) -> Iterator[Laboratory]:
    tensors, layers = graph.tensors, tuple(layer.result for layer in graph.layers)
    places = np.linspace(0, len(samples) - 1, min(SAMPLES, len(samples))).astype(int)
    few = [samples[place] for place in places]
    proto = _Writer(graph, stored).write()
    with (
        compile_model(proto, precision="fp32", threads=threads, verify=False) as compiled,
        compiled.module() as module,
    ):
        nothing = _settings(tensors, layers, {}, ())
        truth = tuple(module.run({**feeds, **nothing}) for feeds in few)
        yield Laboratory(module, tensors, layers, few, truth)


class _Writer:
    def __init__(self, graph: FloatGraph, stored: Mapping[str, StoredLayer]) -> None:
        self._graph, self._stored = graph, stored
        self._numbers = {name: index for index, name in enumerate(graph.tensors)}
        self._layers = {layer.result: index for index, layer in enumerate(graph.layers)}
        self._own = {layer.result: layer for layer in graph.layers if layer.result in stored}
        self._made: list[onnx.NodeProto] = []
        self._arrays = {name: np.array(value, np.float32) for name, value in _CONSTANTS.items()}

    def write(self) -> onnx.ModelProto:
        proto = with_outputs(self._graph.proto, self._graph.compared)
        inner = proto.graph
        sizes = (*[len(self._numbers)] * 3, len(self._layers))
        inner.input.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
            for name, size in zip((_SCALES, _ZEROS, _LEVELS, _WEIGHTS), sizes, strict=True)
        )
        for value in self._graph.inputs:
            self._round(value.name)
        for node in list(inner.node):
            results = list(node.output)
            for place, name in enumerate(node.input):
                if name in self._numbers:
                    node.input[place] = f"{name}_neocpu_rounded"
            if results[0] in self._own:
                self._add_loss(node, self._own[results[0]])
            else:
                self._made.append(node)
            for name in results:
                self._round(name)
        del inner.node[:]
        inner.node.extend(self._made)
        del inner.value_info[:]
        inner.initializer.extend(numpy_helper.from_array(a, n) for n, a in self._arrays.items())
        return proto

    def _add(self, op: str, inputs: Sequence[str], output: str) -> str:
        self._made.append(helper.make_node(op, list(inputs), [output]))
        return output

    def _element(self, vector: str, index: int, name: str) -> str:
        place = f"neocpu_place_{index}"
        self._arrays[place] = np.array(index, np.int64)
        return self._add("Gather", [vector, place], name)

    def _round(self, name: str) -> None:
        """Round a tensor to its grid of the settings, unless that has scale 0."""
        if name not in self._numbers:
            return
        index, at = self._numbers[name], f"{name}_neocpu"
        scale = self._element(_SCALES, index, f"{at}_scale")
        zero = self._element(_ZEROS, index, f"{at}_zero")
        most = self._element(_LEVELS, index, f"{at}_levels")
        rounds = self._add("Greater", [scale, _LEAST], f"{at}_is")
        by = self._add("Where", [rounds, scale, _ONE], f"{at}_by")
        whole = self._add("Round", [self._add("Div", [name, by], f"{at}_scaled")], f"{at}_whole")
        moved = self._add("Add", [whole, zero], f"{at}_moved")
        above = self._add("Max", [moved, _LEAST], f"{at}_above")
        kept = self._add("Min", [above, most], f"{at}_kept")
        centred = self._add("Sub", [kept, zero], f"{at}_centred")
        real = self._add("Mul", [centred, by], f"{at}_real")
        self._add("Where", [rounds, real, name], f"{name}_neocpu_rounded")

    def _add_loss(self, node: onnx.NodeProto, layer: Layer) -> None:
        """Split a layer's sums into its own part and the error of its integers."""
        weights = layer.outputs_first(self._graph.initializers[layer.weights])
        name, at = f"{layer.result}_neocpu_lost", f"{layer.result}_neocpu"
        numbers = self._stored[layer.result]
        lost = numbers.weights.real - weights
        self._arrays[name] = np.ascontiguousarray(layer.as_stored(lost))
        extra = onnx.NodeProto()
        extra.CopyFrom(node)
        extra.name = extra.output[0] = f"{at}_extra"
        del extra.input[2:]
        extra.input[1] = name
        if numbers.bias is not None:  # it may be corrected
            before = 0.0 if layer.bias is None else self._graph.initializers[layer.bias]
            self._arrays[f"{at}_corrected"] = np.asarray(numbers.bias - before, np.float32)
            extra.input.append(f"{at}_corrected")
        node.output[0] = f"{at}_plain"
        self._made += [node, extra]
        share = self._element(_WEIGHTS, self._layers[layer.result], f"{at}_share")
        some = self._add("Mul", [f"{at}_extra", share], f"{at}_some")
        self._add("Add", [f"{at}_plain", some], layer.result)


def choose_methods(
    graph: FloatGraph,
    seen: Mapping[str, Distribution],
    how: QuantiseOptions,
    samples: Samples,
    threads: int | None,
    on_progress: ProgressCallback,
) -> dict[str, str]:
    rounding = Rounding(255, how.symmetric, how.percentile)
    chosen = {}
    with laboratory_of(graph, {}, samples, threads) as laboratory:
        for number, name in enumerate(graph.tensors):
            on_progress(Progress("choose", number, len(graph.tensors), name))
            noise: dict[TensorGrid, float] = {}
            best: dict[str, float] = {}
            for method, find in METHODS.items():
                steps = find(seen[name], rounding).steps(255, symmetric=how.symmetric)
                grid = TensorGrid(*steps)
                if grid not in noise:
                    noise[grid] = laboratory.noise({name: grid})
                best[method] = noise[grid]
            chosen[name] = min(best, key=lambda method: best[method])
    return chosen
