"""Rows that are proven independent are independent, in random models."""

from random import Random

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from neocpu.foundation.errors import NeoCPUError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from neocpu.ir.row_analysis.proof import prove_independent_rows
from tests.fuzz.choices import Choices
from tests.fuzz.generate import generate

SEEDS = 260


def proven(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> bool:
    """Return whether there are rows, and they are proven independent."""
    extents = {array.shape[:1] for array in feeds.values()}
    if len(extents) != 1 or not extents.isdisjoint({(), (0,), (1,)}):
        return False
    loaded = load_model(model)
    if any(count is not None for count in loaded.row_counts):
        return False
    return prove_independent_rows(simplify(import_relax(loaded))).mixed is None


def moved(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.roll(array, 1, axis=0))


def repeated(array: np.ndarray) -> np.ndarray:
    return np.repeat(array[:1], len(array), axis=0)


def test_a_row_of_a_proven_model_has_the_same_outputs_at_every_place():
    tried = 0
    for seed in range(SEEDS):
        case = generate(Choices(Random(seed)))
        feeds = {name: np.asarray(array) for name, array in case.feeds.items()}
        try:
            if not feeds or not proven(case.model, feeds):
                continue
        except NeoCPUError:
            continue  # a model that may be refused
        try:
            evaluator = ReferenceEvaluator(case.model)
            usual = evaluator.run(None, feeds)
        except (ValueError, NotImplementedError, RuntimeError):
            continue  # the evaluator takes the maximum of no element, and lacks some operators
        elsewhere, alone = (
            evaluator.run(None, {name: change(array) for name, array in feeds.items()})
            for change in (moved, repeated)
        )
        tried += 1
        for one, other, first in zip(usual, elsewhere, alone, strict=True):
            largest = np.abs(one[np.isfinite(one)]).max(initial=1) if one.dtype.kind == "f" else 0
            close = {"rtol": 1e-3, "atol": 1e-3 * largest}
            for found, right in ((other, np.roll(one, 1, axis=0)), (first[:1], one[:1])):
                np.testing.assert_allclose(
                    found.astype("float64"), right.astype("float64"), **close, err_msg=str(seed)
                )
    assert tried > 5
