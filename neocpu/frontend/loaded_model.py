"""A checked model, as given and as imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx

from neocpu.foundation.tensor_spec import TensorSpec, group_rows
from neocpu.frontend.onnx_graph.weight_store import WeightStore
from neocpu.frontend.processing.processing import NO_PROCESSING, Processing


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A checked model with static shapes, as given and as imported.

    Inputs are in graph order, without weights. The models refer to large weights in ``weights``, or
    contain them if that is None.
    """

    name: str
    original: onnx.ModelProto  # as given, with frozen shapes and a batch; other engines run it
    simplified: onnx.ModelProto  # equivalent, with a raised opset and folded constants
    bounded: onnx.ModelProto  # imported: rows that data decide are bounded, their counts are last
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    row_counts: tuple[int | None, ...]  # their positions; None where all rows are valid
    sample: onnx.ModelProto | None = None  # the original of one image, before it takes a batch
    processing: Processing = NO_PROCESSING
    notes: tuple[str, ...] = ()  # remarks on ``processing`` for the user
    identities: tuple[str, ...] = ()  # those of `model_identity`
    # The known ones of the simplified model's tensors, most of them also the original's.
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    weights: WeightStore | None = None

    @property
    def reference(self) -> onnx.ModelProto:
        """The model as given: the reference for results, one image at a time if it was changed."""
        return self.original if self.sample is None else self.sample

    @property
    def row_groups(self) -> tuple[tuple[str, ...], ...]:
        """Names of bounded outputs, grouped by count: outputs of a group have the same rows."""
        groups = group_rows(self.row_counts)
        return tuple(tuple(self.outputs[i].name for i in group) for group in groups)

    def without_graphs(self, *, keep_original: bool) -> LoadedModel:
        """Return the model without its graphs, which contain or refer to all weights."""
        nothing = onnx.ModelProto()
        if keep_original:
            return replace(self, simplified=nothing, bounded=nothing)
        return replace(
            self, original=nothing, simplified=nothing, bounded=nothing, sample=None, weights=None
        )
