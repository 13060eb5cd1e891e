"""Whether a compiled module computes what the model says, as exactly as was promised.

The truth is the reference in float64, so that its own rounding is no part of the error found. That
takes two to three times as long as in float32. Where the reference cannot run a model, it is that
of another oracle (`neocpu.verification.reference.oracles`), and the verdict says of which.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
import onnx

from neocpu.foundation.arrays import Array
from neocpu.frontend.onnx_graph.subgraphs import model_nodes
from neocpu.schedules.vocabulary.accuracy import DEFAULT, Accuracy
from neocpu.verification.reference.comparison import Comparison, compare
from neocpu.verification.reference.evaluator import Noise
from neocpu.verification.reference.oracles import Truth, find_truth, find_truth_soon
from neocpu.verification.reference.verdict import REFERENCE, Verdict

Arrays: TypeAlias = Mapping[str, Array]

FLOAT32_RUNS: Final = 3
"""Runs of numpy that tell what float32 errs, all but the first with half a unit's noise.

An error may come from a single logit: of one such draw the next is four times as large in 16 of 100
cases, of the largest of three in one.
"""

DOUBTFUL_RUNS: Final = 13
"""More runs, with `ROUGH` noise, before an artifact is called wrong.

Its error may come from a decision, such as on which side of zero a value is that rounding cannot
tell from it. Where every fifth way to round decides otherwise, one of 13 does in 95 of 100 cases.
"""

LEAST_RUNS: Final = 4
"""Of those, however long they take."""

ROUGH: Final = 8.0
"""Units in the last place that a sum of a few hundred products errs, added up one by one."""

DECISION: Final = 100.0
"""How many times as much as others a run errs that took another decision.

`ROUGH` noise alone makes a factor of 16.
"""


@dataclass(frozen=True, slots=True)
class _Run:
    """The model in float32, and its norm-wise error."""

    outputs: dict[str, Array]
    error: float


class Verifier:
    """Compares runs of one model on the same inputs with what the model says.

    What the reference computes is kept, so that another run of another artifact costs nothing.

    Parameters
    ----------
    model : onnx.ModelProto
    inputs : mapping of str to array
    accuracy : Accuracy
        What is promised.
    row_groups : sequence of sequence of str
        Outputs whose rows describe the same selection, by name.
    shapes : mapping of str to tuple of int
        Of the model's tensors, as far as they are known: what it takes the reference depends on it.
    clock : callable
        Seconds, from whenever on.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        inputs: Arrays,
        accuracy: Accuracy,
        row_groups: Sequence[Sequence[str]] = (),
        shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.inputs = inputs
        self._model = model
        self._accuracy = accuracy
        self._row_groups = row_groups
        self._shapes = shapes
        words = ("Quantize", "QLinear", "QGemm")  # these two where a loop or branch is beside them
        quantised = any(word in node.op_type for node in model_nodes(model) for word in words)
        self._rounds = quantised or accuracy.coarseness > 1
        self._clock = clock
        self._patience = math.inf
        self._quick: Truth | None = None

    def judge(self, actual: Arrays, patience: float = math.inf) -> Verdict:
        """Compare what a module made of the inputs with the truth.

        Element by element, within the tolerances of `compare`, which finds wrong answers; and
        norm-wise within the promised bound. Where float32 itself errs, elements may. Where its
        range makes the difference and not its rounding (an intermediate value that overflows), the
        reference in float32 is the truth.

        Parameters
        ----------
        patience : float
            Seconds. If the truth takes longer, outputs are first compared with a quicker oracle,
            which may accept them, within the bound, but not refuse them.

        Raises
        ------
        AccuracyError
            If nothing can run the model.
        """
        self._patience = patience
        quick = self._soon()
        if quick is not None:
            found = compare(actual, quick.outputs, row_groups=self._row_groups)
            if self._keeps(found):
                return Verdict(found, True, None, quick.oracle.name, quick.oracle.reason)
        oracle = self._truth.oracle
        verdict = self._judge(actual)
        return replace(verdict, oracle=oracle.name, reason=oracle.reason)

    def _judge(self, actual: Arrays) -> Verdict:
        found = compare(actual, self._truth.outputs, row_groups=self._row_groups)
        if self._keeps(found) or not self._calm:
            return Verdict(found, kept=self._keeps(found))
        verdict = self._beside(actual, self._calm)
        return verdict if verdict.is_accepted else self._beside(actual, self._all)

    def reason(self, verdict: Verdict) -> str:
        """Return why an artifact is refused."""
        found = verdict.found
        end = "nothing was written: please report what 'neocpu reduce' leaves of this model"
        if found.why:
            return (
                f"output '{found.worst_output}' {found.why} as {self._named(verdict)} has it; {end}"
            )
        if not verdict.is_rounding(self._accuracy):
            return (
                f"output '{found.worst_output}' differs from {self._named(verdict)} by "
                f"{found.max_abs_error:.3g}, {found.max_rel_error:.3g} of its largest value; {end}"
            )
        single = verdict.float32_error
        beside = "" if single is None else f" (numpy in float32 by {single:.2g})"
        return (
            f"output '{found.worst_output}' errs by {found.norm_error:.2g} of its norm, more than "
            f"the {self._accuracy.bound:g} of --accuracy {self._accuracy}{beside}; {end}"
        )

    def _named(self, verdict: Verdict) -> str:
        return "the reference" if verdict.oracle == REFERENCE else verdict.oracle

    def _keeps(self, found: Comparison) -> bool:
        return found.ok and found.norm_error <= self._accuracy.bound

    def _beside(self, actual: Arrays, runs: Sequence[_Run]) -> Verdict:
        """Compare with the truth, and with what runs in float32 make of it."""
        truth, outputs = self._truth.outputs, [run.outputs for run in runs]
        found = compare(actual, truth, rounded=outputs, row_groups=self._row_groups)
        if not self._keeps(found) and any(
            not _same_range(outputs[0][name], truth[name]) for name in truth
        ):
            other = compare(actual, outputs[0], rounded=outputs, row_groups=self._row_groups)
            found = other if self._keeps(other) else found
        verdict = Verdict(found, self._keeps(found), max(run.error for run in runs))
        # No order of sums keeps a promise that a value between two steps, or between two numbers
        # of bfloat16, breaks.
        return replace(verdict, kept=verdict.kept or (self._rounds and verdict.is_accepted))

    def _soon(self) -> Truth | None:
        """Return what a quicker oracle says, if the truth is not known and takes too long.

        What float32 rounds is too much for a stricter bound than the usual one.
        """
        if "_truth" in vars(self) or self._accuracy.bound < DEFAULT.bound:
            return None
        if self._quick is None:
            self._quick = find_truth_soon(self._model, self.inputs, self._patience, self._shapes)
        return self._quick

    @cached_property
    def _truth(self) -> Truth:
        return find_truth(self._model, self.inputs)

    @cached_property
    def _calm(self) -> list[_Run]:
        """The model in float32, as numpy rounds and as little otherwise as can be.

        Or as coarsely as is promised. Empty if nothing else than the truth's own oracle can run it.
        """
        half = 0.5 * self._accuracy.coarseness
        noisy = (self._run(Noise(seed, half)) for seed in range(1, FLOAT32_RUNS))
        return [run for run in (self._run(), *noisy) if run is not None]

    @cached_property
    def _all(self) -> list[_Run]:
        """Those runs, and the ones that took other decisions."""
        least = DECISION * max(run.error for run in self._calm)
        largest = max(ROUGH, 0.5 * self._accuracy.coarseness)
        runs, start = list(self._calm), self._clock()
        for number in range(DOUBTFUL_RUNS):
            if number >= LEAST_RUNS and self._clock() - start > self._patience:
                break
            run = self._run(Noise(FLOAT32_RUNS + number, largest))
            if run is not None and run.error > least:
                runs.append(run)
        return runs

    def _run(self, noise: Noise | None = None) -> _Run | None:
        """Run the model in float32; None if that, or rounding otherwise, keeps it from running."""
        try:
            outputs = self._truth.oracle.single(noise)
        except Exception:  # an evaluator raises whatever numpy does
            return None
        if outputs is None:
            return None
        found = compare(outputs, self._truth.outputs, row_groups=self._row_groups)
        return _Run(outputs, found.norm_error)


def _same_range(single: Array, truth: Array) -> bool:
    """Whether float32 overflowed nowhere that float64 did not."""
    return single.shape != truth.shape or np.array_equal(np.isfinite(single), np.isfinite(truth))
