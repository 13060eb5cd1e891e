"""Only the rows of a detector's outputs that count are compared, in any order."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import neocpu
from neocpu.verification.divergence.compare import (
    ComparisonInputs,
    compare_artifacts,
    compare_with_model,
    rows_in_order,
)
from tests.neocpu.test_detection import NAMES, detector

RNG = np.random.default_rng(0)
INPUTS = ComparisonInputs()
NAMED = {"w_first": "stage", "w_last": "refined", "iou": "found"}
EXPECTED = {"boxes": RNG.standard_normal((200, 4)), "labels": RNG.integers(0, 9, 200)}


def moved(order: np.ndarray) -> dict[str, np.ndarray]:
    return {name: array[order].copy() for name, array in EXPECTED.items()}


def test_rows_come_in_the_expected_order() -> None:
    found = rows_in_order(moved(RNG.permutation(200)), EXPECTED, [["boxes", "labels"]])
    for name, array in EXPECTED.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_row_of_one_side_alone_is_unmatched() -> None:
    found = rows_in_order(moved(np.arange(199)), EXPECTED, [["boxes", "labels"]])
    assert {name: len(array) for name, array in found.items()} == {"boxes": 200, "labels": 200}


def test_wrong_rows_stay_where_they_are() -> None:
    wrong = moved(np.arange(200))
    wrong["boxes"][7, 2] += 1
    assert rows_in_order(wrong, EXPECTED, [["boxes", "labels"]])["boxes"] is wrong["boxes"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector, an artifact of it, and one that negates the boxes it selects."""
    folder = tmp_path_factory.mktemp("detectors")
    right, wrong = detector(), detector()
    onnx.save(right, folder / "net.onnx")
    (node,) = (node for node in wrong.graph.node if "boxes" in node.output)
    node.output[0] = "positive"
    wrong.graph.node.append(helper.make_node("Neg", ["positive"], ["boxes"]))
    for name, model in (("net", right), ("wrong", wrong)):
        with neocpu.compile(model, threads=1, verify=False) as compiled:
            compiled.export(folder / f"{name}.so")
    return folder


def test_outputs_of_counted_rows_are_compared(folder: Path) -> None:
    right = compare_with_model(folder / "net.onnx", folder / "net.so", ComparisonInputs())
    assert right.first is None
    shapes = {each.name: each.shape for each in right.tensors}
    rows = shapes["labels"][0]
    assert rows > 1
    assert [shapes[name] for name in NAMES] == [(rows, 4), (rows,), (rows,), (rows,)]
    wrong = compare_with_model(
        folder / "net.onnx", folder / "wrong.so", ComparisonInputs(), force=True
    )
    assert [each.name for each in wrong.tensors if not each.kept] == ["boxes"]


def test_counted_rows_of_two_artifacts_are_compared(folder: Path) -> None:
    found = compare_artifacts(
        folder / "net.so", folder / "wrong.so", ComparisonInputs(), force=True
    )
    assert "boxes" in {each.name for each in found.tensors if not each.kept}
    assert {*NAMES} <= {each.name for each in found.tensors}


@pytest.mark.parametrize("wrong", ["w_first", "w_last", "iou"])
def test_tensors_computed_from_selected_rows_are_compared(tmp_path: Path, wrong: str) -> None:
    """The wrong operator among them is named, or the operator that selects the rows."""
    model = detector()
    for names, output in ((("boxes", "w_first"), "stage"), (("turned", "w_last"), "refined")):
        model.graph.node.append(helper.make_node("MatMul", names, [output]))
        if output == "stage":
            model.graph.node.append(helper.make_node("Cos", ["stage"], ["turned"]))
    weights = {"w_first": RNG.standard_normal((4, 37)), "w_last": RNG.standard_normal((37, 3))}
    tensors = [numpy_helper.from_array(a.astype("float32"), n) for n, a in weights.items()]
    model.graph.initializer.extend(tensors)
    refined = helper.make_tensor_value_info("refined", onnx.TensorProto.FLOAT, ["n", 3])
    model.graph.output.append(refined)
    onnx.save(model, tmp_path / "net.onnx")
    for name in ("net", "wrong"):
        if name == "wrong":
            tensor = next(each for each in model.graph.initializer if each.name == wrong)
            tensor.CopyFrom(numpy_helper.from_array(0.8 * numpy_helper.to_array(tensor), wrong))
        with neocpu.compile(model, threads=1, verify=False) as compiled:
            compiled.export(tmp_path / f"{name}.so")
        paths = tmp_path / "net.onnx", tmp_path / f"{name}.so"
        found = compare_with_model(*paths, INPUTS, force=True)
        assert {"stage", "refined"} <= {each.name for each in found.tensors}
        bad = [each.name for each in found.tensors if not each.kept]
        assert bad[:1] == ([] if name == "net" else [NAMED[wrong]])
