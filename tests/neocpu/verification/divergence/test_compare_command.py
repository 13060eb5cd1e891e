"""``neocpu compare``."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import needs
import numpy as np
import onnx
import pytest
from onnx import helper
from page_sections import parts_in
from planted_network import Planter, network
from small_plans import small_plan

from neocpu.cli.main import main
from neocpu.plan.model_values import ModelValue
from neocpu.plan.text.divergence_text import show_divergence
from neocpu.runtime.header_parts import Placement
from neocpu.runtime.module import load
from neocpu.verification.divergence import compare, reference_tensors
from neocpu.verification.divergence.compare import ComparisonInputs, compare_with_model
from neocpu.verification.divergence.operators import Operators
from neocpu.verification.divergence.report import ComparedTensor, Divergence, norm_error, where_of
from neocpu.verification.divergence.watched_model import WatchedModel
from neocpu.verification.reference import onnxruntime_oracle, oracles
from tests.neocpu.frontend.onnx_models import graph_model, onnx_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, an artifact of it, one that is wrong and one of another model."""
    folder = tmp_path_factory.mktemp("compared")
    onnx.save(network(), folder / "net.onnx")
    for name in ("net", "other"):
        path = str(folder / f"{name}.onnx")
        if name == "other":
            shape, exp = ["batch", 3, 20, 20], helper.make_node("Exp", ["x"], ["z"])
            onnx.save(onnx_model([exp], {"x": shape}, {"z": shape}), path)
        options = ["--threads", "1", "--quiet", "-o", str(folder / f"{name}.so")]
        options += ["--shape", "x:{1,2},3,20,20"] if name == "other" else []
        assert main(["compile", path, *options]) == 0
    planter = Planter(folder / "net.so")
    # A tile has 16 output channels, and two input channels of each side by side.
    channel = (0, ..., slice(10, 12)) if needs.HAS_TILES else (..., 5)
    planter.weights("point")[0][channel] *= 1.5
    planter.write(folder / "wrong.so")
    return folder


def compared(
    capfd: pytest.CaptureFixture[str], folder: Path, *arguments: object
) -> tuple[int, str, str]:
    capfd.readouterr()
    paths = (folder / one if (folder / str(one)).exists() else one for one in arguments)
    code = main(["compare", *map(str, paths)])
    out, err = capfd.readouterr()
    return code, out, err


def made(folder: Path, model: onnx.ModelProto, name: str = "net") -> tuple[Path, Path]:
    """Return the paths of a model and of an artifact of it."""
    paths = folder / f"{name}.onnx", folder / f"{name}.so"
    onnx.save(model, paths[0])
    options = ["--no-verify", "--quiet", "--threads", "1", "-o", str(paths[1])]
    assert main(["compile", str(paths[0]), *options]) == 0
    return paths


def compared_tensor(name: str, **errors: float) -> ComparedTensor:
    made_by = {"operator": "op", "kernel": "op", "precision": "fp32", "nodes": ()}
    return ComparedTensor(name=name, shape=(2,), **made_by, **errors)


def test_text(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = compared(capfd, folder, "net.onnx", "net.so")
    assert (code, err) == (0, "")
    assert "first wrong  none: " in out
    code, out, err = compared(capfd, folder, "net.onnx", "wrong.so")
    assert code == 6
    assert err.startswith("neocpu: error: operator conv2d_2 makes 'point' (Conv 'n_point') wrong")
    assert len(err.splitlines()) == 1
    assert "Where 'point' (1x48x20x20) errs" in out
    assert "3 to 5 100% of 48" in out


def test_json_text_and_page_agree(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = folder / "errors.html"
    options = ("--json", "--seed", 3, "--html")
    code, out, err = compared(capfd, folder, "net.onnx", "wrong.so", *options, page)
    document = json.loads(out)
    inputs = ComparisonInputs(seed=3)
    report = compare_with_model(folder / "net.onnx", folder / "wrong.so", inputs, threads=None)
    assert code == 6
    assert report.to_json() == document
    assert document["first"]["name"] == "point"
    assert document["broken"] == 1
    assert sum(each["operators"] for each in document["histogram"]) == len(document["tensors"])
    assert sum(each["count"] for each in document["first"]["where"]["elements"]) == 48 * 400
    note, error = err.splitlines()
    assert f"wrote {page}" in note
    (table,) = parts_in(page, "table")
    assert [[row[2], *row[5:8]] for row in table["rows"]] == [
        [one["name"], one["error"], one["own_error"], one["bound"]] for one in document["tensors"]
    ]
    (chart,) = parts_in(page, "chart")
    assert chart["lines"][1]["values"] == [one["own_error"] for one in document["tensors"]]
    bars = parts_in(page, "bars")
    counts = [each["operators"] for each in document["histogram"]]
    assert [count for _, count in bars[0]["bars"]] == counts
    assert ("operator conv2d_2 makes" in error, bars[1]["bars"][1][0]) == (True, "3 to 5")
    _, _, err = compared(capfd, folder, "net.onnx", "net.so", "--html", folder / "net.so")
    assert "written over" in err


def test_inputs_of_a_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.savez(folder / "zeros.npz", x=np.zeros((1, 3, 20, 20), np.float32))
    np.savez(folder / "small.npz", x=np.zeros((1, 3, 2, 2), np.float32))
    code, out, _ = compared(capfd, folder, "net.onnx", "net.so", "--inputs", "zeros.npz")
    assert code == 0
    assert "inputs       given" in out
    code, _, err = compared(capfd, folder, "net.onnx", "net.so", "--inputs", "small.npz")
    assert code == 2
    assert "expected float32[1,3,20,20]" in err


def test_two_artifacts(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = compared(capfd, folder, "net.so", "wrong.so")
    assert code == 6
    assert f"truth        {folder / 'net.so'}" in out
    code, out, _ = compared(capfd, folder, "wrong.so", "wrong.so", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["model_tensors"] == len(document["tensors"])


def test_a_plan_of_several(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for options, batch in (((), 1), (("--shape", "x:2,3,20,20"), 2)):
        code, out, _ = compared(capfd, folder, "other.onnx", "other.so", "--json", *options)
        assert code == 0
        assert json.loads(out)["tensors"][-1]["shape"] == [batch, 3, 20, 20]
    code, _, err = compared(capfd, folder, "other.onnx", "other.so", "--shape", "x:3,3,20,20")
    assert code == 2
    assert "is compiled for" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("other.onnx", "net.so"), 2, "is not compiled from this model"),
        (("net.onnx", "other.so"), 2, "is not compiled from this model"),
        (("resnet18", "net.so"), 2, "is not compiled from this model"),
        (("other.so", "net.so"), 2, "are not compiled from one model"),
        (("net.onnx", "nothing.so"), 8, "nothing.so"),
        (("nothing.onnx", "net.so"), 3, "nothing.onnx"),
        (("net.onnx", "damaged.so"), 8, "damaged"),
        (("net.onnx", "net.onnx"), 8, "compile the model first with `neocpu compile`"),
        (("net.so", "net.onnx"), 2, "the model comes first: neocpu compare "),
        (("net.onnx", "untold.so"), 8, "does not say where the model's tensors are"),
    ],
)
def test_models_and_artifacts_that_do_not_match_are_refused(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, str],
    code: int,
    said: str,
) -> None:
    shutil.copy(folder / "net.so", folder / "damaged.so")
    with open(folder / "damaged.so", "r+b") as file:
        file.seek(-3000, 2)
        file.write(b"?")
    planter = Planter(folder / "net.so")
    planter.tell({"values": [["stem", 1, 1 << 60, "float32", [1]]]})
    planter.write(folder / "untold.so")
    found, out, err = compared(capfd, folder, *arguments)
    assert (found, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_model_of_other_weights_has_to_be_forced(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trained, faster = network(), network()
    (weights,) = (each for each in trained.graph.initializer if each.name == "w_stem")
    longer = 1.5 * onnx.numpy_helper.to_array(weights)
    weights.CopyFrom(onnx.numpy_helper.from_array(longer, "w_stem"))
    (node,) = (each for each in faster.graph.node if each.output[0] == "block")
    node.op_type = "HardSwish"
    (folder / "again").mkdir()
    onnx.save(faster, folder / "faster.onnx")
    made(folder / "again", trained)
    for other, what in (
        (folder / "again" / "net.onnx", "other weights"),
        (folder / "again" / "net.so", "other weights"),
        (folder / "faster.onnx", "other operators"),
    ):
        code, out, err = compared(capfd, folder, other, "net.so")
        assert (code, out) == (2, "")
        assert err == (
            f"neocpu: error: {folder / 'net.so'} (net) is not compiled from the model of {other}, "
            f"which has {what}: name the one that it was compiled from, or compare them anyway "
            "with --force\n"
        )
        code, out, _ = compared(capfd, folder, other, "net.so", "--force")
        assert code == 6
        assert "first wrong" in out


def test_an_artifact_that_does_not_name_its_model_is_compared(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    planter = Planter(folder / "net.so")
    planter.tell({"models": []})
    planter.write(folder / "nameless.so")
    for other in ("net.onnx", "net.so"):
        assert compared(capfd, folder, other, "nameless.so")[0] == 0


def test_a_model_without_kernels(tmp_path: Path) -> None:
    view = helper.make_node("Reshape", ["x", "shape"], ["y"])
    constants = {"shape": np.array([3, 2])}
    paths = made(tmp_path, onnx_model([view], {"x": [2, 3]}, {"y": [3, 2]}, constants))
    report = compare_with_model(*paths, ComparisonInputs())
    assert [(each.name, each.own_error) for each in report.tensors] == [("y", 0.0)]


def test_a_network_without_calls(tmp_path: Path) -> None:
    copy = helper.make_node("Identity", ["x"], ["y"])
    paths = made(tmp_path, onnx_model([copy], {"x": [2, 3]}, {"y": [2, 3]}))
    report = compare_with_model(*paths, ComparisonInputs())
    (tensor,) = report.tensors
    assert (tensor.name, tensor.operator, tensor.error) == ("y", "copy", 0.0)


def test_a_watched_run_computes_the_same(folder: Path) -> None:
    with WatchedModel(folder / "net.so", 1) as watched, load(folder / "net.so", 1) as module:
        inputs = ComparisonInputs().of(watched)
        run, right = watched.run(inputs), module.run(inputs)
        assert np.array_equal(run.outputs["y"], right["y"])
        assert list(run.tensors) == [value.name for value in watched.values]
        zeros = {"mean": np.zeros((1, 1, 41), np.float32)}
        given = watched.run(inputs, zeros)
        assert np.array_equal(given.tensors["mean"], run.tensors["mean"])
        assert np.array_equal(watched.run(inputs).outputs["y"], right["y"])
        bias = next(t for t in network().graph.initializer if t.name == "b_y")
        assert np.allclose(given.outputs["y"], onnx.numpy_helper.to_array(bias), atol=1e-6)


def test_rows_that_count_by_mistake() -> None:
    right, fewer = np.ones((3, 2), np.float32), np.ones((2, 2), np.float32)
    header = SimpleNamespace(
        plan=small_plan(), calls=(), inputs=(), weights=(), activations=(), returns=(), outputs=()
    )
    alternatives: list[tuple[int, ...]] = []
    value = ModelValue(name="rows", calls=0, offset=0, dtype="float32", shape=(3, 2))
    watched = SimpleNamespace(
        header=header, values=[value], path="wrong.so", alternatives=alternatives
    )
    runs = [{"rows": fewer}] * 3
    truth = compare._Truth("net.onnx", "reference", {"rows": right}, 1)
    (found,) = compare._compared(watched, truth, [value], runs, None)
    assert not found.kept
    assert (found.own_error, found.where) == (np.inf, None)


def test_errors() -> None:
    right = np.random.default_rng(0).standard_normal((2, 20, 3)).astype(np.float32)
    wrong = right.copy()
    wrong[:, 7] += 1
    assert norm_error(right, right) == 0
    assert norm_error(wrong, right) == pytest.approx(np.sqrt(6) / np.linalg.norm(right), 1e-6)
    where = where_of(wrong, right)
    assert [part.share for part in where.axes[0]] == pytest.approx([0.5, 0.5])
    assert [(p.first, p.end) for p in where.axes[1] if p.share > 0.1] == [(6, 8)]
    assert sum(count for _, count in where.elements) == right.size
    for odd in (np.nan, np.inf):
        wrong[0, 0, 0] = odd
        assert norm_error(wrong, right) == np.inf
        assert norm_error(wrong, wrong) == 0
        assert sum(part.share for part in where_of(wrong, right).axes[2]) == pytest.approx(1)
    counts = np.arange(10)
    assert norm_error(counts, np.where(counts < 3, 0, counts)) == pytest.approx(0.2)
    assert norm_error(np.float32([1e-42, 0]), np.float32([0, 0])) == 0
    assert norm_error(np.float32([1e30, 0]), np.float32([1e30, 0])) == 0


def test_models_that_numpy_cannot_run_are_compared_with_onnxruntime(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object, **how: object) -> None:
        raise NotImplementedError("no such operator")

    monkeypatch.setattr(oracles, "run_reference", refused)
    code, out, _ = compared(capfd, folder, "net.onnx", "net.so")
    assert code == 0
    assert "truth        ONNX Runtime 1." in out
    assert "(numpy: no such operator)" in out
    assert compared(capfd, folder, "net.onnx", "wrong.so")[0] == 6
    monkeypatch.setattr(onnxruntime_oracle, "run_onnxruntime", refused)
    code, _, err = compared(capfd, folder, "net.onnx", "net.so")
    assert code == 6
    assert "compare its artifact with another one" in err
    assert len(err.splitlines()) == 1


def test_long_comparisons_are_announced(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_tensors, "predicted_seconds", lambda *_: 75.0)
    _, _, err = compared(capfd, folder, "net.onnx", "net.so")
    assert re.fullmatch(r"neocpu: compare \d+ tensors in numpy in float64, about 75.*\n", err)


def test_pictures(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "pictures.so"
    how = ["--input", "x=u8:nhwc:bgr:31x37", "--resize", "20x20:crop", "--mean", "0.4,0.5,0.6"]
    how += ["--threads", "1", "--batch", "2", "--no-verify", "--quiet"]
    assert main(["compile", str(folder / "net.onnx"), "-o", str(path), *how]) == 0
    code, out, _ = compared(capfd, folder, "net.onnx", path, "--json")
    assert code == 0
    tensors = [one["name"] for one in json.loads(out)["tensors"]]
    assert {"clipped", "stream", "y"} <= {*tensors}
    planter = Planter(path)
    planter.tell({"processing_options": {"input": "x=u8:nhwc:31x37", "resize": 5}})
    planter.write(folder / "odd.so")
    planter = Planter(path)
    planter.tell({"processing_options": None})
    planter.write(folder / "older.so")
    for name in ("odd.so", "older.so"):
        code, _, err = compared(capfd, folder, "net.onnx", name)
        assert code == 8
        assert "does not say how it prepares pictures" in err
        assert len(err.splitlines()) == 1


def test_only_significant_tensors_of_many_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    def tensor(number: int, error: float, own: float) -> ComparedTensor:
        return compared_tensor(f"t{number}", error=error, own_error=own, bound=1e-5)

    errors = [1e-7 * 1.1 ** (number // 40) for number in range(200)]
    tensors = [tensor(*each, 2e-6) for each in enumerate(errors)]
    tensors[50] = tensor(50, 1.1e-7, 2e-5)
    found = Divergence(
        artifact="a.so",
        other="m",
        source="numpy",
        inputs="random",
        tensors=tuple(tensors),
        model_tensors=300,
    )
    for every, listed in ((False, [0, 50, 160, 199]), (True, [*range(200)])):
        show_divergence(found, every=every)
        out = capfd.readouterr().out
        assert [int(number) for number in re.findall(r"(?m)^ *t(\d+) ", out)] == listed
        assert ("and 196 tensors between them, whose errors grew less" in out) != every
    wrong = tuple(tensor(number, 2e-5, 2e-5) for number in range(200))
    show_divergence(replace(found, tensors=wrong), every=False)
    assert "and 189 tensors between them, 189 of them wrong: -v" in capfd.readouterr().out


def test_what_either_branch_makes_a_part_of_is_seen(tmp_path: Path) -> None:
    branches = "".join(
        f"{then}{other} = If(positive) <"
        f"then_branch = t () => (float[4, 16] {then}_y) {{ {then}_y = MatMul(x, {then}) }}, "
        f"else_branch = e () => (float[4, 16] {other}_y) {{ {other}_y = MatMul(x, {other}) }}> "
        for then, other in ("ab", "cd")
    )
    text = f"""(float[4, 16] x) => (float[8, 16] y) {{
        total = ReduceSum<keepdims = 0>(x) positive = Greater(total, zero) {branches}
        both = Concat<axis = 0>(ab, cd) y = Softmax(both) }}"""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((16, 16)).astype(np.float32) for name in "abcd"}
    for file in ("right", "wrong"):
        arrays = {"zero": np.float32(0), **weights}
        arrays |= {"d": 2 * weights["d"]} if file == "wrong" else {}
        made(tmp_path, graph_model(text, **arrays), file)
    for sign, bad in ((1, []), (-1, ["both"])):
        inputs = ComparisonInputs({"x": sign * np.ones((4, 16), np.float32)})
        for file in ("right", "wrong"):
            paths = tmp_path / "right.onnx", tmp_path / f"{file}.so"
            found = compare_with_model(*paths, inputs, force=True)
            wrong = [tensor for tensor in found.tensors if not tensor.kept]
            assert [tensor.name for tensor in wrong] == (bad if file == "wrong" else [])
            assert all(tensor.operator.startswith("dense") for tensor in wrong)
            assert "both" in {tensor.name for tensor in found.tensors}


def test_unseen_operators_before_a_wrong_tensor_are_named_too() -> None:
    places = [Placement(offset, "float32", (4,)) for offset in (0, 16, 16, 0, 32, 16)]
    calls = (("a", (0, 1)), ("b", (1, 2)), ("c", (3, 4)), ("d", (3, 5)), ("e", (4, 5, 6)))
    header = SimpleNamespace(
        plan=small_plan(), inputs=[0], weights=[], calls=calls, activations=(*places, places[0])
    )
    watched = SimpleNamespace(header=header, alternatives=[(call,) for call in range(5)])
    operators = Operators(watched)
    last = ModelValue(name="y", calls=5, offset=0, dtype="float32", shape=(4,))
    # Tensor 3 has the same place as tensor 2.
    assert operators.before(last, {4}) == ("c", "d", "b", "a")
    assert operators.before(last, {4, 1}) == ("c", "d")
    assert operators.before(last, {4, 2, 3}) == ()
    wrong = compared_tensor("y", error=1.0, own_error=1.0, bound=0.1)
    wrong = replace(wrong, operator="e", before=("c", "d"))
    assert str(wrong).startswith("operator e, or c or d before it, makes 'y' wrong: ")
    assert wrong.to_json()["before"] == ["c", "d"]
    assert "e, or a or b or c or d or 3 others before" in str(replace(wrong, before=(*"abcdfgh",)))


def test_a_result_of_a_kernel_with_two_is_traced_to_it() -> None:
    places = tuple(Placement(offset, "float32", (4,)) for offset in (0, 16, 32, 48))
    calls = (("a", (0, 1)), ("two", (1, 2, 3)), ("last", (2, 4)))
    header = SimpleNamespace(
        plan=small_plan(), inputs=[0], weights=[], calls=calls, activations=places
    )
    watched = SimpleNamespace(header=header, alternatives=[(call,) for call in range(3)])
    last = ModelValue(name="y", calls=3, offset=0, dtype="float32", shape=(4,))
    assert Operators(watched).before(last, {2}) == ("two", "a")


def test_both_outputs_of_a_kernel_name_it(tmp_path: Path) -> None:
    outputs = "float[2, 3] values, int64[2, 3] places, float[2, 16] y"
    nodes = "values, places = TopK(x, three) y = Softmax(x)"
    text = f"(float[2, 16] x) => ({outputs}) {{ {nodes} }}"
    paths = made(tmp_path, graph_model(text, three=np.array([3])))
    found = compare_with_model(*paths, ComparisonInputs())
    makers = {tensor.name: tensor.kernel for tensor in found.tensors}
    assert makers["values"] == makers["places"] != makers["y"]
