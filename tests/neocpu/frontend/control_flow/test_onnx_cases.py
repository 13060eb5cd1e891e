"""ONNX's own tests of control flow and sequences; lists are built from tensors in the model."""

from __future__ import annotations

import re

import needs
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import TestCase, collect_testcases

from neocpu.frontend.load import load_model
from neocpu.verification.reference.runner import run_reference

_FAMILIES = "if_|if$|loop1|scan_|scan9|sequence_|split_to_sequence|identity_sequence"
#: Cases with optional inputs or outputs, or where data decide more than one of two tensors.
_EXCLUDED = {"test_if_opt", "test_loop16_seq_none"}


def of_tensors(case: TestCase):
    """Return a case's model over tensors, its inputs, and the expected outputs."""
    model, (inputs, outputs) = onnx.ModelProto(), case.data_sets[0]
    model.CopyFrom(case.model)
    graph, feeds, expected = model.graph, {}, {}
    before, values, results, after = [], [], [], []
    for value, given in zip(graph.input, inputs, strict=True):
        if isinstance(given, list):
            names = [f"{value.name}_{number}" for number in range(len(given))]
            make = "SequenceConstruct" if names else "SequenceEmpty"
            before.append(helper.make_node(make, names, [value.name]))
            feeds |= zip(names, given, strict=True)
        elif given.dtype.kind == "f":
            feeds[value.name] = given
        else:  # a count, a condition, a position
            graph.initializer.append(numpy_helper.from_array(np.asarray(given), value.name))
    for value, made in zip(graph.output, outputs, strict=True):
        if not isinstance(made, list):
            results.append(value)
            expected[value.name] = made
        for number, element in enumerate(made if isinstance(made, list) else ()):
            place, name = f"{value.name}_at_{number}", f"{value.name}_{number}"
            graph.initializer.append(numpy_helper.from_array(np.int64(number), place))
            after.append(helper.make_node("SequenceAt", [value.name, place], [name]))
            results.append(tensor_info(name, element))
            expected[name] = element
    values = [tensor_info(name, array) for name, array in feeds.items()]
    nodes = [*before, *graph.node, *after]
    for field, items in ((graph.node, nodes), (graph.input, values), (graph.output, results)):
        del field[:]
        field.extend(items)
    return model, feeds, expected


def tensor_info(name, array):
    kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
    return helper.make_tensor_value_info(name, kind, np.shape(array))


@needs.everything()
@pytest.mark.filterwarnings("ignore")
def test_onnx_node_tests():
    pattern, passed, failures = re.compile(rf"test_({_FAMILIES})"), 0, []
    for case in collect_testcases(None):
        if not pattern.match(case.name) or case.name in _EXCLUDED:
            continue
        try:
            model, feeds, expected = of_tensors(case)
            found = run_reference(load_model(model).simplified, feeds)
            assert found.keys() == expected.keys()
            for name, array in expected.items():
                np.testing.assert_allclose(found[name], array, rtol=1e-5)
                assert found[name].shape == array.shape
            passed += 1
        except Exception as error:
            failures.append(f"{case.name}: {str(error).strip().splitlines()[:1]}")
    assert not failures, "\n".join(failures)
    assert passed > 20
