"""Redundant nodes of ONNX models disappear, end to end, whichever step removes them.

The nodes to remove are between a sine and a cosine. No rule fires if the import removes them.
"""

from collections import Counter

import numpy as np
import pytest
from relax_modules import evaluate, names, run

from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from tests.neocpu.frontend.differential import run_onnxruntime
from tests.neocpu.graph.rules.cheaper_graphs import CHEAPER
from tests.neocpu.graph.rules.planned_graphs import PLANNED, PLANNED_CONSTANTS
from tests.neocpu.graph.rules.rules_page import effect, size_of
from tests.neocpu.graph.rules.small_graphs import GONE, IMPORT, LESS, X, small_model


@pytest.mark.parametrize("name", GONE)
def test_operators_without_effect_are_removed(name):
    nodes, by = GONE[name]
    model = small_model(nodes)
    (expected,) = run_onnxruntime(model, {"x": X})
    mod, fired = import_relax(load_model(model)), Counter()
    after = simplify(mod, fired=fired)
    assert names(after) == ["sin", "cos"]
    assert (by in fired) if by != IMPORT else (names(mod) == ["sin", "cos"])
    np.testing.assert_allclose(evaluate(after, X)[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LESS)
def test_fewer_operators_are_left(name):
    nodes, by, left = LESS[name]
    mod = import_relax(load_model(small_model(nodes)))
    expected = sorted(["sin", *left, "cos"])  # other rules may move some of them
    assert sorted(names(simplify(mod))) == expected
    assert (sorted(names(simplify(mod, {by}))) == expected) == (by == IMPORT)


@pytest.mark.parametrize("name", [*CHEAPER, *PLANNED])
def test_graphs_have_less_to_compute(name):
    nodes, rule = (CHEAPER | PLANNED)[name]
    model, planned = small_model(nodes, PLANNED_CONSTANTS), name in PLANNED
    (expected,) = run_onnxruntime(model, {"x": X})
    mod, fired = import_relax(load_model(model)), Counter()
    after = simplify(mod, fired=fired)
    assert rule in fired
    without = size_of(simplify(mod, {rule}), planned=planned)
    assert effect(name, without, size_of(after, planned=planned))
    np.testing.assert_allclose(run(after, X)[0], expected, rtol=1e-5, atol=1e-5)
