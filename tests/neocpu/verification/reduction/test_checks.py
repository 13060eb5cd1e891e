"""The built-in checks, and commands as checks."""

import json
import time

import numpy as np
import pytest
from onnx import helper
from tvm import te

from neocpu import CustomOperator, register_operator
from neocpu.cli.array_files.arrays import write_archive
from neocpu.foundation.errors import UsageError
from neocpu.verification.reduction import checks
from neocpu.verification.reduction.checks import CHECKS, parse_check, same_kind
from neocpu.verification.reduction.reduce_model import reduce_model
from neocpu.verification.reduction.whole_graph import Case, WholeGraph
from tests.neocpu.frontend.onnx_models import onnx_model


def case_of(*operators, domain=""):
    """Return a chain of operators."""
    names = ["x", *(f"v{i}" for i in range(len(operators) - 1)), "y"]
    nodes = [
        helper.make_node(op, [names[i]], [names[i + 1]], domain=domain if op == "Odd" else "")
        for i, op in enumerate(operators)
    ]
    model = onnx_model(nodes, {"x": [2, 3]}, {"y": [2, 3]}, domains=["test.odd"])
    return Case(model, {"x": np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("exit code 3", "exit code 3", True),
        ("exit code 3", "exit code 4", False),
        ("signal 11", "exit code 11", False),
        ("UnsupportedError: no operator 'A'", "UnsupportedError: no operator 'B' (3 times)", True),
        ("UnsupportedError: no operator 'A'", "ModelError: no operator 'A'", False),
        ("UnsupportedError: shape of 'y' depends on data", "UnsupportedError: no operator", False),
        ("bug", "bug", True),
    ],
)
def test_failures_that_are_alike(one, other, same):
    assert same_kind(one, other) == same


@pytest.mark.parametrize(
    ("command", "failure"),
    [
        ("true", None),
        ("exit 3 #", "exit code 3"),
        ("kill -9 $$ #", "signal 9"),
        ("test -s", None),
        ("test ! -s {model}", "exit code 1"),
        ("grep -q x.npy {inputs} && ! grep -q Relu {model}", "exit code 1"),
    ],
)
def test_commands(command, failure):
    check = parse_check(command, write_archive)
    assert check.find(case_of("Relu"), 60) == failure


def test_a_command_that_hangs_is_killed_with_what_it_started():
    start = time.monotonic()
    check = parse_check("sleep 50 | sleep 50 #", write_archive)
    assert check.find(case_of("Relu"), 0.3) == "too slow: took more than 0 s"
    assert time.monotonic() - start < 20


def test_texts_that_are_no_commands_are_refused():
    with pytest.raises(UsageError, match="--check is empty: give a command, or one of does-not"):
        parse_check(" ", write_archive)
    with pytest.raises(UsageError, match="the shell finds no such command"):
        parse_check("no-such-program", write_archive).find(case_of("Relu"), 60)


@pytest.mark.parametrize("command", ["if true; then", "test '{model}", "test ( {model} )"])
def test_an_error_in_a_commands_syntax_is_no_failure_of_the_model(command):
    with pytest.raises(UsageError, match=r"the shell cannot read that command: .+"):
        parse_check(command, write_archive)


def test_lines_for_people(tmp_path):
    path = tmp_path / "a b.onnx"
    shown = parse_check("./mine", write_archive).shown(path, tmp_path / "x.npz")
    assert shown == f"./mine '{path}'"
    assert "--check differs" in CHECKS["differs"].shown(path, tmp_path / "x.npz")


@pytest.fixture(scope="module")
def odd_operator():
    """An operator whose kernel computes something else than its reference: -x of x > 0.5."""

    def compute(inputs, attributes):
        from tvm import tirx

        (x,) = inputs
        return te.compute(x.shape, lambda *at: tirx.if_then_else(x(*at) > 0.5, -x(*at), x(*at)))

    register_operator(CustomOperator("test.odd", "Odd", compute, lambda given, _: given[0]))


@pytest.mark.usefixtures("odd_operator")
def test_a_model_that_differs_is_reduced():
    case = case_of("Relu", "Tanh", "Odd", "Sigmoid", domain="test.odd")
    check = CHECKS["differs"]
    whole = WholeGraph.of(case.model, case.inputs)
    found = reduce_model(whole, check, "part", budget=120)
    assert found.case.operators == ("Odd",)
    assert found.failure.startswith("AccuracyError: output 'v2' differs from the reference by")
    (given,) = found.case.inputs.values()
    np.testing.assert_allclose(given, np.tanh(np.maximum(case.inputs["x"], 0)), rtol=1e-6)


def test_a_model_that_does_not_compile_is_reduced():
    case = case_of("Relu", "Tanh", "Odd", "Sigmoid", "Relu", domain="test.even")
    case.model.opset_import.append(helper.make_opsetid("test.even", 1))
    check = CHECKS["does-not-compile"]
    found = reduce_model(WholeGraph.of(case.model, case.inputs), check, "part", budget=120)
    assert found.case.operators == ("Tanh", "Odd") or found.case.operators == ("Odd",)
    assert "test.even" in found.failure


def test_models_that_compile_and_agree_pass_every_check():
    for name in ("does-not-compile", "differs"):
        assert CHECKS[name].find(case_of("Relu"), 120) is None


def test_models_that_cannot_be_raced_are_not_slower(monkeypatch):
    case = case_of("Relu", "Odd", domain="test.even")
    case.model.opset_import.append(helper.make_opsetid("test.even", 1))
    found = CHECKS["slower"].find(case, 120)
    assert found is not None
    assert found.startswith("cannot be raced: ")
    assert "Odd" in found
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'neocpu\[bench\]'"):
        CHECKS["slower"].find(case_of("Relu"), 120)


def test_a_race_with_wrong_outputs_ends_with_an_exit_code(monkeypatch):
    document = json.dumps({"results": [{"model": "net"}], "failures": []}).encode()
    monkeypatch.setattr(checks, "_run", lambda command, seconds: (6, document))
    assert CHECKS["slower"].find(case_of("Relu"), 120) == "exit code 6"
