"""Pretrained models in other projects' packages, each compared with ONNX Runtime.

They are real networks with real weights, and need no further download.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import neocpu
from tests import needs
from tests.zoo.check import difference, onnxruntime_session

TOLERANCE = 1e-3
"""The tolerance, relative to an output's largest value."""


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model in a package's folder.

    - `module`, `package`: the module to import, and the package to install; without them ``path``
      is a file beside the checkout.
    - `path`: the model's path in the package's folder.
    - `shapes`: the ``shapes`` of `neocpu.compile`: shapes, and values of inputs that become
      constants.
    - `states`: inputs that take outputs of the previous call, and zeros at first.
    """

    module: str
    package: str
    path: str
    shapes: Mapping[str, Any]
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its file's."""
        return Path(self.path).stem

    @property
    def file(self) -> Path:
        """The path of the model; it does not exist if the package is not installed."""
        return Path(folder_of(self.module) if self.module else "", self.path)


def folder_of(module: str) -> str:
    """Return a package's folder, without importing it: that may ask for PyTorch."""
    spec = importlib.util.find_spec(module)
    return "" if spec is None else next(iter(spec.submodule_search_locations or [""]))


def _silero(name: str, shapes: Mapping[str, Any], states: Mapping[str, str]) -> PackagedModel:
    return PackagedModel("silero_vad", "silero-vad", f"data/{name}.onnx", shapes, states)


_RATE = {"sr": 16000}
_BLOCK: Mapping[str, Any] = {"input": (1, 576), "state": (2, 1, 128)}
_STATE = {"state": "stateN"}
SPEECH = (
    _silero("silero_vad", _BLOCK | _RATE, _STATE),
    _silero("silero_vad_16k_op15", _BLOCK | _RATE, _STATE),
    _silero("silero_vad_op18_ifless", _BLOCK | _RATE, _STATE),
    _silero("silero_vad_half", _BLOCK, _STATE),
    _silero("silero_vad_openvino_16k", _BLOCK, _STATE),
    _silero("silero_vad_16k_sequence", {"input": (20, 576)}, {"h": "hn", "c": "cn"}),
)
"""Models that detect speech in blocks of 32 ms, at 16 000 samples a second."""

FACES = PackagedModel("", "", str(needs.FACE_DETECTOR), {})
MODELS = (*SPEECH, FACES)


def compare(model: PackagedModel, calls: int = 5) -> float:
    """Return the largest difference in successive calls, of an output's largest value."""
    session = onnxruntime_session(model.file)
    with (
        neocpu.compile(model.file, shapes=dict(model.shapes), verify=False) as compiled,
        compiled.module() as module,
    ):
        states = {s.name: np.zeros(s.shape, s.dtype) for s in module.inputs}
        constants = {k: np.array(v) for k, v in model.shapes.items() if isinstance(v, int)}
        names = [output.name for output in session.get_outputs()]
        worst, rng = 0.0, np.random.default_rng(0)
        for call in range(calls):
            feeds = {
                spec.name: states[spec.name]
                if spec.name in model.states
                else signal(rng, spec.shape, call)
                for spec in module.inputs
            }
            ours = module.run(feeds)
            theirs = dict(zip(names, session.run(names, feeds | constants), strict=True))
            worst = max(worst, *(difference(ours[name], theirs[name]) for name in names))
            states |= {name: theirs[made] for name, made in model.states.items()}
    return worst


def signal(rng: np.random.Generator, shape: Sequence[int], call: int) -> np.ndarray:
    """Return a signal between silence and noise: a tone that grows in noise."""
    tone = np.sin(np.arange(np.prod(shape)) * (0.05 + 0.02 * call)).reshape(shape)
    return (tone * 0.2 * call + rng.normal(size=shape) * 0.05).astype(np.float32)
