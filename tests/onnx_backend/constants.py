"""`python -m tests.onnx_backend.constants`: inputs of ONNX's tests as constants change nothing.

Each test of an operator is run with some of its inputs, drawn by its name, as constants of the
model: its outcome and its results have to stay those of the test with all inputs.
With words, only tests whose names have one of them are run.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

from neocpu.foundation.errors import NeoCPUError
from neocpu.frontend.shapes.static_shapes import fix_inputs
from tests.onnx_backend.suite import LISTED, Broken, CheapBackend, Result

_UNIT = 2.0**-6
"""Two units in the last place of bfloat16."""


@cache
def operator_tests() -> dict[str, Any]:
    """Return ONNX's tests of operators by name, if they have several inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero
        cases = load_model_tests(kind="node")
    return {
        case.name: case
        for case in cases
        if case.name not in LISTED
        if len(case.data_sets[0][0]) > 1 and all(map(_is_number, case.data_sets[0][0]))
    }


def subsets(name: str) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of inputs that become constants: all but one, and some others."""
    count = len(operator_tests()[name].data_sets[0][0])
    draw = random.Random(name)
    left = draw.randrange(count)
    most = tuple(number for number in range(count) if number != left)
    some = tuple(number for number in range(count) if draw.random() < 0.5)
    yield most
    if some and len(some) < count and some != most:
        yield some


def run_with(name: str, constants: tuple[int, ...]) -> Result:
    """Run a test with inputs as constants, by the numbers of these."""
    case = operator_tests()[name]
    inputs, expected = case.data_sets[0]
    graph = case.model.graph
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = max(model.ir_version, 4)  # before, constants had to be inputs, too
    # Some tests leave inputs out that the model has.
    names = [value.name for value in graph.input]
    arrays = {names[number]: np.asarray(inputs[number]) for number in constants}
    try:
        fix_inputs(model.graph, arrays)
        given = [np.asarray(each) for at, each in enumerate(inputs) if at not in constants]
        found = CheapBackend.prepare(model).run(given)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_equal(np.shape(one), np.shape(other))
            coarse = np.asarray(other).dtype.itemsize < 4
            np.testing.assert_allclose(
                np.asarray(one, np.float64),
                np.asarray(other, np.float64),
                rtol=max(case.rtol, _UNIT if coarse else 0),
                atol=max(case.atol, _UNIT if coarse else 1e-6),
            )
    except NeoCPUError as error:
        return Result("refused", str(error))
    except AssertionError as error:
        return Result("wrong", " ".join(str(error).split())[:300])
    except Broken as error:
        return Result("crashed", str(error))
    return Result("passed")


def _is_number(value: Any) -> bool:
    """Return whether a value is a tensor of numbers, not a sequence, text or None."""
    if not isinstance(value, np.ndarray | np.generic):
        return False
    return np.asarray(value).dtype.kind in "biuf" or np.asarray(value).dtype.name == "bfloat16"


def main(words: list[str]) -> None:
    names = [n for n in operator_tests() if not words or any(word in n for word in words)]
    count = 0
    for name in names:
        for constants in subsets(name):
            count += 1
            result = run_with(name, constants)
            if result.ending != "passed":
                print(f"{name} {constants}: {result.ending} {result.reason}", flush=True)
    print(f"{count} models")


if __name__ == "__main__":
    main(sys.argv[1:])
