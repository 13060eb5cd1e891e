"""A sample of ONNX's suite ends as docs/onnx-backend.md says."""

import needs

from tests.onnx_backend.__main__ import run_all
from tests.onnx_backend.constants import operator_tests, run_with, subsets
from tests.onnx_backend.suite import suite
from tests.onnx_backend.table import DOCUMENT, not_passed_in

_EVERY = 40 if needs.EVERYTHING else 80


def test_tests_listed_as_passed_pass_and_none_is_wrong():
    listed = not_passed_in(DOCUMENT.read_text())
    assert 0 < len(listed) < len(suite()) / 6
    results = run_all(sorted(suite())[needs.first_of(_EVERY) :: _EVERY])
    assert len(results) > 20
    failures = {
        name: result
        for name, result in results.items()
        if result.ending in ("wrong", "crashed") or (result.ending != "passed") > (name in listed)
    }
    assert not failures


def test_inputs_as_constants_change_nothing():
    step = 10 if needs.EVERYTHING else 40
    names = sorted(operator_tests())[needs.first_of(step) :: step]
    failures = {}
    for name in names:
        for constants in subsets(name):
            result = run_with(name, constants)
            if result.ending in ("wrong", "crashed"):
                failures[name, constants] = result
    assert len(names) > 20
    assert not failures
