"""Sets of shapes from C, under the sanitizers."""

import numpy as np
import pytest

from neocpu.runtime.artifact import read_header
from neocpu.runtime.bundle.write_bundle import write_bundle
from tests.neocpu.compilation.conftest import SHAPES, Network
from tests.neocpu.runtime.bundle.conftest import SANITIZERS, Built, build
from tests.neocpu.runtime.forgery import forge_header
from tests.neocpu.runtime.header_mutants import mutant

MUTANTS = 40


@pytest.fixture(scope="module")
def native(sized: Network, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("native") / "bundle"
    write_bundle(sized.path, folder)
    return build(folder, "-O1", *SANITIZERS)


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_files_tell_which_of_the_shapes(native: Built, sized: Network, tmp_path, number: int):
    x = np.random.default_rng(number).normal(size=SHAPES[number]["x"]).astype("float32")
    np.save(tmp_path / "x.npy", x)
    ends = (tmp_path / "x.npy", "-o", tmp_path / "y.npy", "--repeat", 2)
    done = native.run("neocpu_run", sized.path, *ends)
    assert (done.returncode, done.stderr) == (0, "")
    expected, _ = sized.reference(x)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-5)


def test_other_files_are_refused(native: Built, sized: Network, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 3, 9, 7), "float32"))
    done = native.run("neocpu_run", sized.path, tmp_path / "x.npy")
    message = "neocpu_run: error: the files have none of the model's shapes; of the last: "
    assert (done.returncode, done.stderr.startswith(message)) == (2, True)
    assert "holds (5, 3, 9, 7)" in done.stderr
    done = native.run("neocpu_run", sized.path, tmp_path / "none.npy")
    assert (done.returncode, done.stderr.startswith(message)) == (2, True)
    assert "none.npy: No such file" in done.stderr


def test_bytes_tell_which_of_the_shapes(native: Built, sized: Network):
    done = native.run(native.compile("signatures.c"), sized.path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "0: say which: model 'sized' takes several shapes of so many bytes: say which with "
        "neocpu_run_signature",
        "1: runs",
    ]
    assert lines[4] == (
        "the inputs have none of the shapes that model 'sized' is compiled for: "
        "x[1,3,9,7]; x[3,3,9,7]; x[1,3,7,9]; x[2,3,16,5]"
    )
    assert lines[5] == "the model has 4 signatures, there is no number 4"


def test_headers_that_lie_are_refused_or_run(native: Built, sized: Network, tmp_path):
    right, refused = read_header(sized.path).to_json(), 0
    for program in right["plans"]:
        program["plan"] = {}
    for seed in range(MUTANTS):
        path = forge_header(sized.path, tmp_path / "forged.so", mutant(right, seed))
        done = native.run("neocpu_run", path, "--threads", 1)
        assert done.returncode in (0, 5, 8), (seed, done.stderr)
        refused += done.returncode == 8
    assert refused > MUTANTS // 2
