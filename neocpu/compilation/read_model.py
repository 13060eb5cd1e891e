"""Read a model in any form that users have, and list its operators and workloads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

import onnx

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.pipeline import BUILDING
from neocpu.compilation.network_tuning import workloads_of
from neocpu.frontend import models
from neocpu.frontend.importer import import_relax
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.onnx_graph.weight_store import WeightStore
from neocpu.frontend.processing.load_processed import load_processed
from neocpu.frontend.processing.processing import NO_PROCESSING, Processing
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.graph.simplify import simplify
from neocpu.planning.extract import extract
from neocpu.planning.network import Network
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, Workload

ModelLike: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto


def load_for_import(
    model: ModelLike,
    shapes: InputShapes,
    processing: Processing = NO_PROCESSING,
    weights: WeightStore | None = None,
) -> LoadedModel:
    """Read, check and simplify a model, or build one by its name.

    `weights`: the store that large weights move to; by default they stay in the model's messages.
    """
    if isinstance(model, str) and models.is_name(model):
        built = models.build_with_shapes(model, shapes)
        if weights is not None:
            built = weights.take(built)
        return replace(load_processed(built, NO_SHAPES, processing, weights), name=model)
    return load_processed(model, shapes, processing, weights)


def read_network(model: ModelLike, shapes: InputShapes = NO_SHAPES) -> Network:
    """Return a model's operators as the layout search sees them."""

    def read() -> Network:
        loaded = load_for_import(model, shapes, weights=WeightStore())
        return extract(simplify(import_relax(loaded)))

    with BUILDING:
        return on_deep_stack(read)


def workloads(
    model: ModelLike, targets: Iterable[CpuTarget], shapes: InputShapes = NO_SHAPES
) -> set[Workload]:
    """Return the workloads that `tune` measures for a model on at least one of ``targets``."""
    network = read_network(model, shapes)
    return {workload for target in targets for workload in workloads_of(network, target)}


def convolutions(model: ModelLike, shapes: InputShapes = NO_SHAPES) -> list[Conv2dWorkload]:
    """Return a model's convolutions, in program order."""
    return [conv.workload for conv in read_network(model, shapes).convs]
