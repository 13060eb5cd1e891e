"""Commands on an artifact whose calls choose a height and a width."""

import numpy as np
import pytest
import sized_artifact

SHAPES = ("--shape", "x:1,2,20,7")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return sized_artifact.write(tmp_path_factory.mktemp("sized"))


def shapes(document, kind):
    return [each["shape"] for each in document[kind]]


def test_run_takes_the_typical_shape_or_any_other(cli, path):
    found = cli("run", path, "--json").json
    assert shapes(found, "inputs") == [[1, 2, 8, 5], [1, 4]]
    found = cli("run", path, *SHAPES, "--json").json
    assert shapes(found, "inputs") == [[1, 2, 20, 7], [1, 10]]
    assert shapes(found, "outputs") == [[1, 2, 10, 3], [1, 2]]


@pytest.mark.parametrize("archive", [True, False])
def test_run_takes_the_shapes_of_files(cli, path, tmp_path, archive):
    x, m = sized_artifact.inputs_of(30, 11)
    if archive:
        np.savez(tmp_path / "in.npz", x=x, m=m)
        given = ["--inputs", tmp_path / "in.npz"]
    else:
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "m.npy", m)
        given = ["--input", f"x={tmp_path / 'x.npy'}", "--input", f"m={tmp_path / 'm.npy'}"]
    cli("run", path, *given, "--outputs", tmp_path / "out.npz").succeeds()
    with np.load(tmp_path / "out.npz") as found:
        for name, expected in zip(("pooled", "sums"), sized_artifact.reference(x, m), strict=True):
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("x:1,2,9,5", "extent 2 is 9, and the module takes 2..64 in steps of 2: the nearest is x["),
        ("x:2,9,5", "expected float32[1,2,2..64/2,2..48], got float32[2,9,5]"),
        ("z:2,9,5", "is compiled for x[1,2,2..64/2,2..48] m[1,1..32], and no other inputs"),
    ],
)
def test_other_shapes_are_refused(cli, path, given, message):
    for command in ("run", "inspect", "explain"):
        assert message in cli(command, path, "--shape", given).error


def test_files_of_other_shapes_are_refused(cli, path, tmp_path):
    x, m = sized_artifact.inputs_of(30, 11)
    np.savez(tmp_path / "in.npz", x=x, m=m[:, :3])
    outcome = cli("run", path, "--inputs", tmp_path / "in.npz")
    assert "extent 1 is 3, and must be 15 because extent 2 of input 'x' is 30" in outcome.error
    np.savez(tmp_path / "in.npz", x=x)
    assert "missing input m" in cli("run", path, "--inputs", tmp_path / "in.npz").error


def test_inspect_shows_ranges(cli, path):
    text = " ".join(cli("inspect", path).succeeds().out.split())
    assert "x: float32[1, 2, 2..64/2, 2..48]; m: float32[1, 1..32]" in text
    assert "planned for x[1,2,8,5] m[1,4]" in text
    text = " ".join(cli("inspect", path, *SHAPES).succeeds().out.split())
    assert "chosen x[1,2,20,7] m[1,10] -> pooled[1,2,10,3] sums[1,2]" in text


def test_inspect_has_ranges_and_sizes_in_json(cli, path):
    (found,) = cli("inspect", path, "--json").json["variants"]
    assert found["ranges"] == {"x": [1, 2, "2..64/2", "2..48"], "m": [1, "1..32"]}
    assert found["sizes"][0] == {"name": "h", "least": 2, "most": 64, "step": 2, "typical": 8}
    assert found["shapes"][0]["inputs"] == {"x": [1, 2, 8, 5], "m": [1, 4]}
    (other,) = cli("inspect", path, *SHAPES, "--json").json["variants"]
    assert other["shapes"][0]["outputs"] == {"pooled": [1, 2, 10, 3], "sums": [1, 2]}
    assert other["arena_bytes"] > found["arena_bytes"]
