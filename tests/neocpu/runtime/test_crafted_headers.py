"""Headers with a right digest that contradict the code: none of the code runs."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from forgery import forge_header
from header_mutants import mutant

from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.runtime.artifact import read_header
from neocpu.runtime.module import load
from tests.neocpu.runtime import test_bounded_outputs, test_repeats

counted = test_bounded_outputs.counted
looped = test_repeats.looped
MUTANTS = 300
# Of each file: refused, or what it gave, which the test compares with what the right one gives.
CHILD = """
import json, sys
import numpy as np
import neocpu
from neocpu.foundation.errors import NeoCPUError
inputs, *paths = sys.argv[1:]
with np.load(inputs) as stored:
    arrays = [stored[name] for name in stored.files]
for path in paths:
    print(path, end=' ', flush=True)
    try:
        with neocpu.load(path, 1) as module:
            fitting = [np.resize(x, spec.shape) for x, spec in zip(arrays, module.inputs)]
            results = module(fitting)
            results = results if isinstance(results, tuple) else (results,)
            print(json.dumps([y.tobytes().hex() for y in results]))
    except NeoCPUError as error:
        assert '\\n' not in str(error)
        print('refused')
"""


@pytest.fixture(scope="module", params=["small", "counted", "looped"])
def original(request):
    """A compiled model with activations; one with a count of rows; one with a loop."""
    chosen = request.getfixturevalue(request.param)
    return getattr(chosen, "path", chosen)


def test_a_header_that_lies_is_refused_or_is_another_program(original, tmp_path):
    header = read_header(original)
    right = header.to_json()
    inputs = tmp_path / "inputs.npz"
    arrays = random_inputs(header.inputs, seed=1)
    if "count" in arrays:
        arrays["count"] = np.array([3], np.int64)
    np.savez(inputs, *arrays.values())
    paths = [original]
    for seed in range(MUTANTS):
        text = json.dumps(mutant(right, seed)).encode()
        paths.append(forge_header(original, tmp_path / f"{seed}.so", text))
    command = [sys.executable, "-c", CHILD, str(inputs), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout.rpartition("\n")[2] + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    expected = said.pop(str(original))
    assert {"refused", expected} <= set(said.values())
    for path, words in said.items():
        if words not in ("refused", expected):
            assert program(read_header(path)) != program(header), path


def program(header):
    """Return the part of a header that defines the computation; other values may be valid too."""
    parts = header.calls, header.repeats, header.slices, header.returns
    return (*parts, header.weights, header.activations, header.row_counts)


@pytest.mark.parametrize(
    ("change", "blamed"),
    [
        ({"activations": ()}, "malformed header (calls)"),
        ({"weights": ()}, "malformed header (weights)"),
        ({"arena_bytes": 64}, "malformed header (activations)"),
    ],
)
def test_what_a_header_leaves_out(small, tmp_path, change, blamed):
    header = replace(small.header, **change)
    path = forge_header(small.path, tmp_path / "a.so", header.to_json())
    with pytest.raises(ArtifactError, match="header") as caught:
        load(path)
    assert blamed in str(caught.value)


def test_shapes_that_shrink(small, tmp_path):
    fields = small.header.to_json()
    for where, place in (("inputs", "shape"), ("outputs", "shape"), ("activations", 2)):
        changed = json.loads(json.dumps(fields))
        changed[where][0][place][-1] -= 1
        path = forge_header(small.path, tmp_path / "a.so", changed)
        with pytest.raises(ArtifactError, match=r"another size or type|\(returns\)"):
            load(path)
