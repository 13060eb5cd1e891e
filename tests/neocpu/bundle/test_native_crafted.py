"""Headers that lie: the C program refuses what Python refuses, and runs what it runs."""

import json
from dataclasses import replace

import numpy as np
import pytest
from forgery import forge_header
from header_mutants import MALFORMED, RIGHT, edited, mutant

import neocpu
from neocpu.foundation.errors import ArtifactError, TargetError
from neocpu.runtime.artifact import read_header
from neocpu.tensor_spec import random_inputs

MUTANTS = 120


@pytest.mark.parametrize("name", ["small", "counted"])
def test_a_header_that_lies(run, name, request, tmp_path):
    path = request.getfixturevalue(name)
    path = getattr(path, "path", path)
    header = read_header(path)
    arrays = random_inputs(header.inputs, seed=1)
    if "count" in arrays:
        arrays["count"] = np.array([3], np.int64)
    files = [tmp_path / f"x{i}.npy" for i in range(len(arrays))]
    for file, array in zip(files, arrays.values(), strict=True):
        np.save(file, array)
    wanted = [word for i in range(len(header.outputs)) for word in ("-o", tmp_path / f"y{i}.npy")]
    with neocpu.load(path, 1) as module:
        expected = [array.tobytes() for array in module.run(arrays).values()]
    for seed in range(MUTANTS):
        text = json.dumps(mutant(header.to_json(), 1000 + seed)).encode()
        forged = forge_header(path, tmp_path / "forged.so", text)
        try:
            neocpu.load(forged, 1).close()
            code = 0
        except (ArtifactError, TargetError) as error:
            code = error.exit_code
        done = run(forged, *files, *wanted, "--threads", 1)
        assert done.returncode == code, (seed, done.stderr)
        if code == 0:
            found = [np.load(file).tobytes() for file in wanted[1::2]]
            assert found == expected, seed
        else:
            (line,) = done.stderr.splitlines()
            assert line.startswith("neocpu_run: error: ")


@pytest.mark.parametrize("name", MALFORMED)
def test_what_one_refuses_the_other_refuses(run, linear, tmp_path, name):
    text = edited(linear.header.encode(), MALFORMED[name])
    path = forge_header(linear.path, tmp_path / "a.so", text)
    with pytest.raises(ArtifactError, match="has a malformed header"):
        read_header(path)
    done = run(path, "--threads", 1)
    assert done.returncode == 8
    assert "has a malformed header" in done.stderr


@pytest.mark.parametrize("name", RIGHT)
def test_what_one_reads_the_other_reads(run, linear, tmp_path, name):
    text = edited(linear.header.encode(), RIGHT[name])
    path = forge_header(linear.path, tmp_path / "a.so", text)
    assert replace(read_header(path), plan={}) == replace(linear.header, plan={})
    done = run(path, "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("linear\n")


def test_wrong_shapes_have_the_same_reason_in_both(run, small, tmp_path):
    fields = small.header.to_json()
    fields["activations"][0][2][-1] -= 1
    path = forge_header(small.path, tmp_path / "a.so", fields)
    with pytest.raises(ArtifactError) as caught:
        neocpu.load(path)
    done = run(path)
    assert done.returncode == 8
    for reason in ("header and code disagree: ", "Check failed: input_shape[i] == reg"):
        assert reason in str(caught.value)
        assert reason in done.stderr
