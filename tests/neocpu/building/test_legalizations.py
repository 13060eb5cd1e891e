"""Operators that are computed differently from TVM's own legalisation."""

import numpy as np
import pytest
from differential import one_op

import neocpu


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [3.0, 3.7, -4.0, 1e30])
def test_powers_by_constants_print_nothing(dtype, exponent, capfd):
    """TVM would print advice about each power, which a user cannot follow."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 24)).astype(dtype)
    model = one_op("Pow", x, [np.array(exponent, dtype)])
    with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
        found = module(x)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, np.power(x, exponent, dtype=dtype), rtol=1e-5)
    assert capfd.readouterr() == ("", "")
