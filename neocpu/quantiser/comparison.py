"""Running a float32 model and a quantised one side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neocpu.foundation.progress import ProgressCallback, silent
from neocpu.quantiser.histogram import Array
from neocpu.quantiser.observation import Samples, VisibleModel, decibels


@dataclass(frozen=True, slots=True)
class Comparison:
    """The distance of a quantised model from the model that it was made of."""

    decibels: dict[str, float]  # signal to noise of tensors, outputs included
    # `wanted_means`, `found_means`: mean of each channel of inner tensors, in the float32 model and
    # in the quantised one.
    wanted_means: dict[str, Array]
    found_means: dict[str, Array]
    # Share of rows whose largest score is the same; None for models without rows of scores.
    agreement: float | None
    outputs: tuple[str, ...]

    @property
    def worst(self) -> float:
        """The signal-to-noise ratio of the outputs, in decibels."""
        return min(self.decibels[name] for name in self.outputs)

    @property
    def error(self) -> float:
        """The norm-wise error of the outputs, by that ratio."""
        return float(10 ** (-max(self.worst, -300.0) / 20))


class _Tally:
    """Sums over samples of one tensor's signal, noise and channel means."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0
        self.means: list[tuple[Array, Array]] = []

    def add(self, wanted: Array, found: Array) -> None:
        with np.errstate(invalid="ignore", over="ignore"):  # equal infinities do not differ
            difference = np.where(wanted == found, 0.0, wanted - found)
        if not np.isfinite(difference).all():
            self.noise = float("inf")
            difference = np.zeros(())
        wanted, found = (np.nan_to_num(each, posinf=0.0, neginf=0.0) for each in (wanted, found))
        self.signal += float(np.vdot(wanted, wanted))
        self.noise += float(np.vdot(difference, difference))
        if wanted.ndim > 1:
            axes = (0, *range(2, wanted.ndim))
            wide = np.float64  # the sum of a few large numbers is infinite in float32
            self.means.append((wanted.mean(axes, wide), found.mean(axes, wide)))

    @property
    def decibels(self) -> float:
        return decibels(self.signal, self.noise)


def compare_models(
    models: tuple[VisibleModel, VisibleModel],
    outputs: tuple[str, ...],
    tensors: Sequence[str],
    samples: Samples,
    on_progress: ProgressCallback,
) -> Comparison:
    """Run a model and the one that was made of it on all samples, and compare them. `tensors` are
    compared in addition to the outputs; they have the same names in both.
    """
    names = tuple(dict.fromkeys((*outputs, *tensors)))
    runs = [
        model.on(samples, tell, "compare")
        for model, tell in zip(models, (silent, on_progress), strict=True)
    ]
    tallies = {name: _Tally() for name in names}
    same = rows = 0
    for first, second in zip(*runs, strict=True):
        for name, tally in tallies.items():
            tally.add(_real(first[name]), _real(second[name]))
        scores = [(first[name], second[name]) for name in outputs if first[name].ndim == 2]
        for a, b in scores:
            same += int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
            rows += len(a)
    within = {name: tallies[name].means for name in tensors}
    wanted_means, found_means = (
        {name: np.mean([pair[side] for pair in pairs], axis=0) for name, pairs in within.items()}
        for side in (0, 1)
    )
    decibels = {name: tally.decibels for name, tally in tallies.items()}
    agreement = same / rows if rows else None
    return Comparison(decibels, wanted_means, found_means, agreement, outputs)


def _real(array: Any) -> Array:
    found: Array = np.asarray(array, np.float32)
    return found
