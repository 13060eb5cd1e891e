"""Checking that a compiled module computes the model as exactly as promised.

The truth is the reference in float64, so that its own rounding is no part of the measured error.
That takes two to three times as long as in float32. If the reference cannot run a model, the truth
is from another oracle (`neocpu.verification.reference.oracles`), which the verdict names.
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
from neocpu.verification.reference.comparison import REFERENCE, Comparison, Verdict, compare
from neocpu.verification.reference.evaluator import Noise
from neocpu.verification.reference.oracles import Truth, find_quick_truth, find_truth

Arrays: TypeAlias = Mapping[str, Array]

FLOAT32_RUNS: Final = 3
"""Runs of numpy that show the error of float32, all but the first with half a unit of noise.

An error may come from a single logit. A new draw of it is four times as large as one other draw in
16 of 100 cases, but four times as large as the largest of three in one.
"""

DOUBTFUL_RUNS: Final = 13
"""More runs, with `ROUGH` noise, before an artifact is called wrong.

Its error may come from a decision that depends on rounding, such as the sign of a value near zero.
If every fifth rounding decides differently, at least one of 13 does in 95 of 100 cases.
"""

LEAST_RUNS: Final = 4  # least number of those runs, however long they take

ROUGH: Final = 8.0
"""Error of a sum of a few hundred products, added one by one, in units in the last place."""

DECISION: Final = 100.0
"""Error of a run that made another decision, as a multiple of the error of others.

`ROUGH` noise alone makes a factor of 16.
"""


def _overflowed(single: Array, right: Array) -> bool:
    return single.shape == right.shape and bool((np.isfinite(single) != np.isfinite(right)).any())


@dataclass(frozen=True, slots=True)
class _Run:
    """The outputs of a run in float32, and their largest norm-wise error against the truth."""

    outputs: dict[str, Array]
    error: float


class Verifier:
    """A judge of runs of one model on the same inputs.

    It keeps the reference's outputs, so that judging another artifact costs nothing. Outputs of a
    row group describe the same selection. Known shapes of tensors predict the reference's time.
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
        words = ("Quantize", "QLinear", "QGemm")  # the last two remain in models with control flow
        quantised = any(word in node.op_type for node in model_nodes(model) for word in words)
        self._rounds = quantised or accuracy.coarseness > 1
        self._clock = clock
        self._patience = math.inf
        self._quick: Truth | None = None

    def judge(self, actual: Arrays, patience: float = math.inf) -> Verdict:
        """Compare the outputs of a module with the truth.

        Each element must be within the tolerances of `compare`, and each output norm-wise within
        the promised bound. Elements may err more where float32 itself errs. If its range makes the
        difference (an intermediate value overflows), the reference in float32 is the truth.
        The truth may take ``patience`` seconds. If it takes longer, outputs are first compared with
        a quicker oracle, which may accept outputs but refuse none. Nothing being able to run the
        model is an `AccuracyError`.
        """
        self._patience = patience
        quick = self._quick_truth()
        if quick is not None:
            found = compare(actual, quick.outputs, row_groups=self._row_groups)
            if self._keeps(found):
                return Verdict(found, True, None, quick.oracle.name, quick.oracle.reason)
        oracle = self._truth.oracle
        verdict = self._judge(actual)
        return replace(verdict, oracle=oracle.name, reason=oracle.reason)

    def _judge(self, actual: Arrays) -> Verdict:
        found = compare(actual, self._truth.outputs, row_groups=self._row_groups)
        if self._keeps(found) or not self._float32_runs:
            return Verdict(found, kept=self._keeps(found))
        verdict = self._judged_with(actual, self._float32_runs)
        return verdict if verdict.is_accepted else self._judged_with(actual, self._all_runs)

    def reason(self, verdict: Verdict) -> str:
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
        numpy_error = "" if single is None else f" (numpy in float32 by {single:.2g})"
        return (
            f"output '{found.worst_output}' errs by {found.norm_error:.2g} of its norm, more than "
            f"the {self._accuracy.bound:g} of --accuracy {self._accuracy}{numpy_error}; {end}"
        )

    def _named(self, verdict: Verdict) -> str:
        return "the reference" if verdict.oracle == REFERENCE else verdict.oracle

    def _keeps(self, found: Comparison) -> bool:
        return found.ok and found.norm_error <= self._accuracy.bound

    def _judged_with(self, actual: Arrays, runs: Sequence[_Run]) -> Verdict:
        """Compare with the truth, allowing for the errors of runs in float32."""
        truth, outputs = self._truth.outputs, [run.outputs for run in runs]
        found = compare(actual, truth, rounded=outputs, row_groups=self._row_groups)
        if not self._keeps(found) and any(
            _overflowed(outputs[0][name], right) for name, right in truth.items()
        ):
            other = compare(actual, outputs[0], rounded=outputs, row_groups=self._row_groups)
            found = other if self._keeps(other) else found
        verdict = Verdict(found, self._keeps(found), max(run.error for run in runs))
        # A value halfway between two integers or two numbers of bfloat16 may break the promise in
        # any order of sums.
        return replace(verdict, kept=verdict.kept or (self._rounds and verdict.is_accepted))

    def _quick_truth(self) -> Truth | None:
        """Return a quicker oracle's outputs for default bounds, if the truth takes too long."""
        if "_truth" in vars(self) or self._accuracy.bound < DEFAULT.bound:
            return None
        if self._quick is None:
            self._quick = find_quick_truth(self._model, self.inputs, self._patience, self._shapes)
        return self._quick

    @cached_property
    def _truth(self) -> Truth:
        return find_truth(self._model, self.inputs)

    @cached_property
    def _float32_runs(self) -> list[_Run]:
        """Runs of the model in float32: one as numpy rounds, the others with random noise.

        The noise is as large as the rounding that the accuracy allows. Empty if the truth's oracle
        cannot run in float32.
        """
        half = 0.5 * self._accuracy.coarseness
        noisy = (self._run(Noise(seed, half)) for seed in range(1, FLOAT32_RUNS))
        return [run for run in (self._run(), *noisy) if run is not None]

    @cached_property
    def _all_runs(self) -> list[_Run]:
        """`_float32_runs`, and noisier runs whose large errors show that they decided otherwise."""
        least = DECISION * max(run.error for run in self._float32_runs)
        largest = max(ROUGH, 0.5 * self._accuracy.coarseness)
        runs, start = list(self._float32_runs), self._clock()
        for number in range(DOUBTFUL_RUNS):
            if number >= LEAST_RUNS and self._clock() - start > self._patience:
                break
            run = self._run(Noise(FLOAT32_RUNS + number, largest))
            if run is not None and run.error > least:
                runs.append(run)
        return runs

    def _run(self, noise: Noise | None = None) -> _Run | None:
        """Run the model in float32; None if it cannot run so, or not with this noise."""
        try:
            outputs = self._truth.oracle.single(noise)
        except Exception:  # an evaluator raises whatever numpy does
            return None
        if outputs is None:
            return None
        found = compare(outputs, self._truth.outputs, row_groups=self._row_groups)
        return _Run(outputs, found.norm_error)
