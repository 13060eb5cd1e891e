"""Headers that lie about calls and weights: the C program refuses them before it calls any."""

from dataclasses import replace

import numpy as np
import pytest
from forgery import forge_header

from neocpu.building.link import write_artifact
from neocpu.foundation.tensor_spec import TensorSpec
from tests.neocpu.conftest import _build, _header


def changed(fields, *place, value):
    for step in place[:-1]:
        fields = fields[step]
    fields[place[-1]] = value


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("activations", 0, 2, -1), 1, "has a tensor of another size or type"),
        (("activations", 0, 1), "int32", "has a tensor of another size or type"),
        (("calls", 0, 0), "nothing", "which the code has not"),
        (("calls", 0, -1), 0, "has a tensor of another size or type"),
        (("calls", 0, slice(1, 2)), [], "which takes others"),
        (("activations", 1, 0), 0, "writes what it reads"),
        (("calls", 0, 1), 10**6, "malformed header (calls)"),
        (("calls", 0, 1), -1, "malformed header (calls)"),
        (("calls", 0), [], "malformed header (calls)"),
        (("returns", 0), 1, "malformed header (returns)"),
        (("returns",), [], "malformed header (returns)"),
        (("returns", 0), 10**6, "malformed header (returns)"),
    ],
)
def test_calls_that_do_not_keep_to_their_tensors(run, small, tmp_path, place, value, reason):
    fields = small.header.to_json()
    changed(fields, *place, value=value)
    done = run(forge_header(small.path, tmp_path / "a.so", fields))
    assert (done.returncode, reason in done.stderr) == (8, True), done.stderr


def test_weights_may_not_overlap(run, linear, tmp_path):
    fields = linear.header.to_json()
    fields["weights"].insert(1, fields["weights"][0])
    done = run(forge_header(linear.path, tmp_path / "a.so", fields))
    assert (done.returncode, "malformed header (weights)" in done.stderr) == (8, True), done.stderr


def test_a_kernel_may_not_write_inputs_or_weights(run, tmp_path):
    from tvm import relax

    built = _build([("x", (8,)), ("w", (8,))], lambda bb, x, w: bb.emit(relax.op.add(x, w)))
    program = replace(built.planned.program, calls=(("add", (0, 1, 1)),))
    built = replace(built, planned=replace(built.planned, program=program))
    spec = TensorSpec("x", "float32", (8,))
    header = _header("again", [spec], [spec])
    path = tmp_path / "a.so"
    write_artifact(built, [np.zeros(8, np.float32)], header, path)
    done = run(path)
    assert done.returncode == 8
    assert "call 0, of 'add', writes an input or a weight" in done.stderr
