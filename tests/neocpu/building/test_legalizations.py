"""Operators that are computed differently from TVM's own legalisation."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import neocpu


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [3.0, 3.7, -4.0, 1e30])
def test_powers_by_constants_print_nothing(dtype, exponent, capfd):
    """TVM would print advice about each power, which a user cannot follow."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = [helper.make_tensor_value_info(name, kind, [2, 24]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Pow", ["x", "n"], ["y"])],
        "g",
        values[:1],
        values[1:],
        [numpy_helper.from_array(np.array(exponent, dtype), "n")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 24)).astype(dtype)
    with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
        found = module(x)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, np.power(x, exponent, dtype=dtype), rtol=1e-5)
    assert capfd.readouterr() == ("", "")
