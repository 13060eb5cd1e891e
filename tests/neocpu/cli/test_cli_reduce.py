"""`neocpu reduce`."""

from pathlib import Path

import numpy as np
import onnx
import pytest

COMMAND = "grep -q weights {model} && exit 1; exit 0"


def test_a_part_and_its_inputs_are_written(cli, onnx_file):
    done = cli("reduce", onnx_file, "--check", COMMAND).succeeds()
    lines = done.out.splitlines()
    assert lines[0] == "small.reduced.onnx: 1 of 2 nodes fail in the same way"
    assert [line.split()[0] for line in lines[1:3]] == ["nodes", "inputs"]
    assert lines[-1].endswith("grep -q weights small.reduced.onnx && exit 1; exit 0")
    model = onnx.load("small.reduced.onnx")
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    with np.load("small.reduced.npz") as inputs:
        assert {name: inputs[name].shape for name in inputs} == {"image": (1, 3, 16, 16)}
    asked = ["--check", COMMAND, "--json", "--no-weights", "-o", "part.onnx", "--quiet"]
    document = cli("reduce", onnx_file, *asked).json
    assert document["operators"] == ["Conv"]
    assert document["nodes"] == 2
    assert document["failure"] == "exit code 1"
    assert document["is_smallest"]
    (drawn,) = onnx.load("part.onnx").graph.initializer
    (given,) = model.graph.initializer
    assert drawn.dims == given.dims
    assert drawn.raw_data != given.raw_data


def test_inputs_of_the_callers(cli, onnx_file):
    image = np.full((1, 3, 16, 16), 7, "float32")
    np.savez("x.npz", image=image)
    cli("reduce", onnx_file, "--check", "false", "--inputs", "x.npz", "-o", "y.onnx").succeeds()
    with np.load("y.npz") as inputs:
        np.testing.assert_array_equal(inputs["image"], image)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--check", "true"], 2, "passes the check, so there is nothing to reduce"),
        (["--check", " "], 2, "--check is empty"),
        (["--check", "no-such-program"], 2, "finds no such command"),
        (["--check", "true", "--inputs", "none.npz"], 2, "no such input file"),
        (["--check", "true", "-o", "nowhere/x.onnx"], 2, "nowhere"),
        (["--check", "true", "-o", "x.npz"], 2, "name an .onnx file"),
        (["--check", "true", "--budget", "soon"], 2, "soon"),
        (["--check", "true", "--shape", "z:1"], 2, "an input 'z' the model does not have"),
        ([], 2, "--check"),
    ],
)
def test_mistakes(cli, onnx_file, options, code, message):
    cli("reduce", onnx_file, *options).fails(code, message)
    assert not list(Path().glob("*.onnx"))


def test_models_that_are_none(cli):
    assert "no such model file" in cli("reduce", "none.onnx", "--check", "true").error
    assert "no built-in network 'resnet51'" in cli("reduce", "resnet51", "--check", "true").error
