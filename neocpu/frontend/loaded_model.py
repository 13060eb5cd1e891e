"""A checked model, as given and as the importer takes it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from neocpu.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checked model with static shapes, as given and as the importer takes it.

    Attributes
    ----------
    name : str
        The file's stem, or the graph's name.
    original : onnx.ModelProto
        The model as given, with input and output shapes frozen: what a reference runs.
    simplified : onnx.ModelProto
        The equivalent model with a raised opset, constants folded and dead code removed.
    inputs, outputs : tuple of TensorSpec
        In graph order; weights are not inputs.
    """

    name: str
    original: onnx.ModelProto
    simplified: onnx.ModelProto
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
