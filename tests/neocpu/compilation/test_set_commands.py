"""Commands that know sets of shapes."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import needs
import numpy as np
import onnx
import pytest

from neocpu.cli.main import main
from neocpu.plan.profiling import call_times
from neocpu.runtime.artifact import read_header
from tests.neocpu.compilation.conftest import SHAPES, Network


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line; return its exit code, and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def command(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return command


def test_compile_tells_each_of_the_shapes(run: Any, sized: Network, tmp_path: Path):
    onnx.save(sized.model, tmp_path / "net.onnx")
    given = ("--shape", "n=1..2", "--shape", "h=7", "--shape", "w=5")
    code, out, err = run("compile", "net.onnx", "-o", "net.so", *given, "--threads", 1)
    assert code == 0, err
    assert "x[1,3,7,5]" in out
    assert "x[2,3,7,5]" in out
    report = json.loads(run("inspect", "net.so", "--json")[1])
    assert [each["inputs"] for each in report["variants"][0]["shapes"]] == [
        {"x": [1, 3, 7, 5]},
        {"x": [2, 3, 7, 5]},
    ]


def test_run_takes_the_shapes_of_the_set(run: Any, sized: Network, tmp_path: Path):
    x = np.random.default_rng(5).normal(size=SHAPES[1]["x"]).astype("float32")
    np.save(tmp_path / "x.npy", x)
    assert run("run", sized.path, "--input", "x.npy", "-o", "y.npz", "--quiet")[0] == 0
    expected, _ = sized.reference(x)
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected, rtol=1e-4, atol=1e-5)
    _, out, _ = run("run", sized.path, "--shape", "x:2,3,16,5", "--json")
    report = json.loads(out)
    assert report["inputs"][0]["shape"] == [2, 3, 16, 5]
    assert report["outputs"][0]["shape"] == [2, 5, 16, 5]


@pytest.mark.parametrize("rows", [10**9, 10**17])
def test_run_refuses_a_batch_that_no_memory_holds(run: Any, sized: Network, rows: int):
    code, _, err = run("run", sized.path, "--shape", f"x:{rows},3,9,7")
    assert code == 2
    assert f"neocpu: error: x[{rows},3,9,7] needs " in err
    assert err.endswith(" GB: give a smaller shape\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", [2, 0])
@needs.one_in(2)
def test_any_plan_of_a_set_is_profiled(run: Any, sized: Network, number: int):
    given = ("--shape", f"x:{','.join(map(str, SHAPES[number]['x']))}")
    code, out, err = run("explain", sized.path, *given, "--html", "p.html", "--profile", "--json")
    assert code == 0, err
    measured = json.loads(out)["profile"]["operators"]
    plan = read_header(sized.path).each[number]
    assert {one["kernel"] for one in measured} == {*(name for name, _ in plan.calls), "runtime"}
    assert all(one["seconds"] > 0 for one in measured if one["kernel"] != "runtime")


def test_a_profile_of_one_plan_is_shown_by_explain(run: Any, sized: Network):
    given = ("--shape", f"x:{','.join(map(str, SHAPES[2]['x']))}")
    code, out, err = run("bench", "profile", sized.path, *given, "--json")
    assert code == 0, err
    Path("profile.json").write_text(out)
    page = ("--html", "p.html", "--measured", "profile.json")
    assert run("explain", sized.path, *given, *page)[0] == 0
    code, _, err = run("explain", sized.path, *page)
    assert code == 2
    assert "is of another artifact: its call 0 is of" in err
    Path("profile.json").write_text(run("bench", "profile", sized.path, "--json")[1])
    code, _, err = run("explain", sized.path, *given, *page)
    assert code == 2
    assert f"write one with: neocpu bench profile {sized.path} {' '.join(given)} --json" in err


def test_pages_of_the_arena_are_those_that_the_largest_plan_needs(sized: Network, monkeypatch):
    sizes: list[int] = []
    monkeypatch.setattr(call_times, "gc", SimpleNamespace(collect=int, disable=int))
    monkeypatch.setattr(call_times, "resident_pages", lambda path, size: sizes.append(size))
    call_times.measure(str(sized.path), 1, 2)
    plans = [each.arena_bytes for each in read_header(sized.path).each]
    assert sizes == [max(plans)] != plans[:1]


def test_other_shapes_are_refused(run: Any, sized: Network, tmp_path: Path):
    np.save(tmp_path / "x.npy", np.zeros((5, 3, 9, 7), "float32"))
    listed = "x[1,3,9,7]; x[3,3,9,7]; x[1,3,7,9]; x[2,3,16,5]"
    for ends in (("--input", "x.npy"), ("--shape", "x:5,3,9,8"), ("--shape", "x=5")):
        code, out, err = run("run", sized.path, *ends)
        assert (code, out) == (2, "")
        assert listed in err


def test_run_takes_batches_without_a_plan(run: Any, sized: Network, tmp_path: Path):
    x = np.random.default_rng(6).normal(size=(5, 3, 9, 7)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    shape = ("--shape", "x:5,3,9,7")
    code, _, err = run("run", sized.path, *shape, "--input", "x.npy", "-o", "y.npz", "--quiet")
    assert code == 0, err
    expected, _ = sized.reference(x)
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected, rtol=1e-4, atol=1e-5)
    report = json.loads(run("run", sized.path, *shape, "--json")[1])
    assert report["outputs"][0]["shape"] == [5, 5, 9, 7]


def test_inspect_and_explain_show_the_set(run: Any, sized: Network):
    _, out, _ = run("inspect", sized.path)
    assert "4: x[1,3,9,7]; x[3,3,9,7]; x[1,3,7,9]; x[2,3,16,5]" in out
    _, out, _ = run("explain", sized.path, "--shape", "x:3,3,9,7")
    assert out.splitlines()[1].split() == ["shape", "x[3,3,9,7]"]
    one, other = (
        json.loads(run("explain", sized.path, "--json", "--shape", f"x:{shape}")[1])
        for shape in ("1,3,9,7", "2,3,16,5")
    )
    assert one["predicted_us"] < other["predicted_us"]
    for plan in (one, other):
        assert [*plan["search"]["levels_us"]] == ["nchw", "conv-layout", "uniform"]
        convolutions = [op for op in plan["ops"] if op["kind"] == "conv2d"]
        assert all(op["alternatives"] for op in convolutions)
