"""One case of the fuzzer: a model and what to feed it, on disk a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from neocpu.frontend.shapes.static_shapes import real_inputs


@dataclass(frozen=True, slots=True)
class Case:
    """A model, legal or not, and how to run it.

    The feeds have the model's types and shapes as far as these are known. The origin names the
    model it was made from, and the mutations; the options are those of `neocpu.compile`. An
    ``extreme`` case also runs on NaN, infinities and the largest and smallest integers.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    origin: str
    options: Mapping[str, Any] = field(default_factory=dict)
    extreme: bool = False

    def save(self, folder: Path) -> None:
        """Write the case into an existing folder."""
        (folder / "model.onnx").write_bytes(self.model.SerializeToString())
        # Names may not be file names, so they are kept separately.
        np.savez(folder / "feeds.npz", *self.feeds.values())
        about = {"names": list(self.feeds), "origin": self.origin}
        settings = {"options": dict(self.options), "extreme": self.extreme}
        (folder / "case.json").write_text(json.dumps(about | settings))

    @classmethod
    def load(cls, folder: Path) -> Case:
        """Read what `save` wrote."""
        model = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes())
        about = json.loads((folder / "case.json").read_text())
        names = about.pop("names")
        with np.load(folder / "feeds.npz") as arrays:
            feeds = dict(zip(names, arrays.values(), strict=True))
        return cls(model, feeds, **about)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case, one of `FAILURES` or `FINE`, and the step that ran last.

    The detail is the message or the difference, in one line; the notes are no failures, but worth a
    look. ``accepted`` says whether ONNX Runtime ran the model; None if it was not asked.
    """

    kind: str
    detail: str = ""
    stage: str = ""
    notes: list[str] = field(default_factory=list)
    accepted: bool | None = None

    @property
    def failed(self) -> bool:
        """Whether the outcome is a failure to fix."""
        return self.kind in FAILURES

    def to_json(self) -> str:
        """Return the form that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Inverse of `to_json`."""
        return cls(**json.loads(text))


FAILURES = ("signal", "hang", "traceback", "wrong", "false alarm", "left behind")
FINE = ("equal", "refused", "unstable", "peers differ", "unchecked", "peer died")


def fit_feeds(model: onnx.ModelProto, known: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return feeds for a model's inputs: the known ones where they fit, else ones and zeros."""
    feeds = {}
    for value in real_inputs(model.graph):
        tensor = value.type.tensor_type
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        except KeyError:
            continue
        shape = [max(dim.dim_value, 0) or 1 for dim in tensor.shape.dim]
        array = known.get(value.name)
        if dtype.kind not in "fiub":
            continue
        if array is not None and array.dtype == dtype and list(array.shape) == shape:
            feeds[value.name] = array
        elif np.prod(shape, dtype=float) < 1 << 24:
            numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
            plain = numbers % 7 / 4 - 0.5 if dtype.kind == "f" else numbers % 2
            feeds[value.name] = plain.astype(dtype)
    return feeds
