"""A checked model, as given and as the importer takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx

from neocpu.foundation.tensor_spec import TensorSpec, group_rows
from neocpu.frontend.processing.processing import NO_PROCESSING, Processing


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checked model with static shapes, as given and as the importer takes it.

    Attributes
    ----------
    name : str
        The file's stem, or the graph's name.
    original : onnx.ModelProto
        The model as given, with input and output shapes frozen, and changed to take a batch: what
        other engines run.
    simplified : onnx.ModelProto
        The equivalent model with a raised opset, constants folded and dead code removed.
    bounded : onnx.ModelProto
        What is imported: the simplified model, its shapes static where only the data decides how
        many rows there are. After its outputs are hidden ones, the row counts of bounded outputs.
    inputs, outputs : tuple of TensorSpec
        In graph order; weights are not inputs.
    row_counts : tuple of int or None
        Of each output, the position of the hidden one that says how many of its rows count; None
        where all do.
    sample : onnx.ModelProto or None
        The model as given, if that is of one image and was changed to take a batch.
    processing : Processing
        What is done before and after the model.
    notes : tuple of str
        What to tell of that.
    identities : tuple of str
        What tells the model that was given from others, and what it was made of:
        `model_identity.identities`.
    shapes : mapping of str to tuple of int
        What the simplified model's tensors are known to have; most are also the original's.
    """

    name: str
    original: onnx.ModelProto
    simplified: onnx.ModelProto
    bounded: onnx.ModelProto
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    row_counts: tuple[int | None, ...]
    sample: onnx.ModelProto | None = None
    processing: Processing = NO_PROCESSING
    notes: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def reference(self) -> onnx.ModelProto:
        """The model as given: what is right, image by image where it was changed."""
        return self.original if self.sample is None else self.sample

    @property
    def row_groups(self) -> tuple[tuple[str, ...], ...]:
        """Names of bounded outputs, those of one count together: they describe the same rows."""
        groups = group_rows(self.row_counts)
        return tuple(tuple(self.outputs[i].name for i in group) for group in groups)

    def without_graphs(self, *, keep_original: bool) -> LoadedModel:
        """Let go of its graphs, each of which holds a copy of all weights."""
        nothing = onnx.ModelProto()
        if keep_original:
            return replace(self, simplified=nothing)
        return replace(self, original=nothing, simplified=nothing, sample=None)
