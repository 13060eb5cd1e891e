"""ONNX's own node tests of the operators whose geometry is easy to get wrong."""

from __future__ import annotations

import re

import needs
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import TestCase, collect_testcases

from tests.neocpu.frontend.differential import run_imported

_FAMILIES = (
    "averagepool|maxpool|lppool|conv_|convtranspose|resize_.*(linear|nearest)|batchnorm|"
    "group_normalization|layer_normalization|spacetodepth|wrap_pad|mvn|instancenorm|"
    "lstm|gru|rnn|simple_rnn"
)
_EXCLUDED = (
    "expanded",
    "argmax",  # the indices output of MaxPool
    "training_mode",
    "uint8",
    # ONNX takes the unrounded length here; the text of its standard, PyTorch and ONNX Runtime
    # take the resized one.
    "downsample_scales_linear_align_corners",
)
# Operators whose further inputs are parameters, constant in every exported network.
_PARAMETERS = ("Resize", "Pad")


@pytest.fixture(scope="module")
def cases() -> list[TestCase]:
    pattern = re.compile(rf"test_(basic_)?({_FAMILIES})")
    return [
        case
        for case in collect_testcases(None)
        if pattern.match(case.name)
        and not any(word in case.name for word in _EXCLUDED)
        and not (case.name.startswith("test_layer_norm") and len(case.model.graph.output) > 1)
    ]


@pytest.mark.filterwarnings("ignore")
def test_onnx_node_tests(cases):
    """The backend's tests take another sample, or all tests on request."""
    failures = []
    for case in needs.sample(cases, 6):
        try:
            _compare(case)
        except Exception as error:
            failures.append(f"{case.name}: {str(error).strip().splitlines()[0]}")
    assert not failures, "\n".join(failures)
    assert len(cases) > 80


def _compare(case: TestCase) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    inputs, outputs = case.data_sets[0]
    graph = model.graph
    feeds = dict(zip([value.name for value in graph.input], inputs, strict=True))
    if graph.node[0].op_type in _PARAMETERS:
        for value in list(graph.input)[1:]:
            array = np.asarray(feeds[value.name])
            graph.initializer.append(numpy_helper.from_array(array, value.name))
            graph.input.remove(value)
    _, _, actual = run_imported(model, feeds)
    for mine, theirs in zip(actual, outputs, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)
