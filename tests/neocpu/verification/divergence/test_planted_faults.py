"""One fault is planted in an artifact, and the comparison names its operator."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import quantised_models
from planted_network import EPSILON, LIMIT, SLOPE, Planter, network, shuffled_network

import neocpu
from neocpu.verification.divergence.compare import (
    ComparisonInputs,
    compare_artifacts,
    compare_with_model,
)
from neocpu.verification.divergence.report import Divergence

Change = Callable[[np.ndarray], None]
WEIGHTS, BIAS = 0, 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    quantised = quantised_models.quantised(quantised_models.network_in_groups())
    for name, model in (("net", network()), ("integers", quantised)):
        onnx.save(model, folder / f"{name}.onnx")
        with neocpu.compile(str(folder / f"{name}.onnx"), threads=1, verify=False) as compiled:
            compiled.export(folder / f"{name}.so")
    return folder


def found(folder: Path, name: str = "net", artifact: str = "wrong") -> Divergence:
    model = folder / f"{name}.onnx"
    return compare_with_model(model, folder / f"{artifact}.so", ComparisonInputs(), threads=1)


def one_up(array: np.ndarray) -> None:
    array.reshape(-1)[0] += np.asarray(0.25, array.dtype) if array.dtype.kind == "f" else 40


def one_negated(array: np.ndarray) -> None:
    array.reshape(-1)[0] *= -1


def all_negated(array: np.ndarray) -> None:
    array *= -1


def stale_scale(array: np.ndarray) -> None:
    array *= np.float32(1.01)


def halves_swapped(array: np.ndarray) -> None:
    array[...] = np.roll(array, array.size // 2)  # a bias may have its channels along any axis


def next_channels(array: np.ndarray) -> None:
    array[...] = np.roll(array, 1)


def one_missing(array: np.ndarray) -> None:
    array[..., 0] = 0


def first_missing(array: np.ndarray) -> None:
    array[0] = 0


IN_WEIGHTS = [
    ("clipped", BIAS, one_up),
    ("clipped", WEIGHTS, halves_swapped),
    ("clipped", WEIGHTS, one_negated),
    ("leaky", WEIGHTS, next_channels),
    ("leaky", BIAS, all_negated),
    ("point", WEIGHTS, one_missing),
    ("point", BIAS, halves_swapped),
    ("left", WEIGHTS, halves_swapped),
    ("right", WEIGHTS, stale_scale),
    ("right", BIAS, next_channels),
    ("norm", WEIGHTS, stale_scale),
    ("norm", BIAS, one_up),
    ("block", WEIGHTS, first_missing),
    ("block", BIAS, one_up),
    ("one", WEIGHTS, next_channels),
    ("layer", WEIGHTS, stale_scale),
    ("layer", BIAS, one_missing),
    ("query", WEIGHTS, one_negated),
    ("key", WEIGHTS, one_negated),
    ("value", WEIGHTS, all_negated),
    ("stream", BIAS, next_channels),
    ("stream", WEIGHTS, stale_scale),
]


@pytest.mark.parametrize(
    ("tensor", "place", "change"), IN_WEIGHTS, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_fault_in_weights_is_located(
    folder: Path, tensor: str, place: int, change: Change
) -> None:
    planter = Planter(folder / "net.so")
    change(planter.weights(tensor)[place])
    planter.write(folder / "wrong.so")
    report = found(folder)
    assert report.first is not None
    assert report.first.name == tensor
    # Later operators read the wrong tensor, and are right themselves.
    assert [each.name for each in report.tensors if not each.kept] == [tensor]
    assert report.tensors[-1].error > report.tensors[-1].bound


@pytest.mark.parametrize(
    ("tensor", "before", "after"),
    [("clipped", LIMIT, 1.25), ("leaky", SLOPE, 0.02), ("norm", EPSILON, 0.02)],
)
def test_a_fault_in_code_is_located(folder: Path, tensor: str, before: float, after: float) -> None:
    planter = Planter(folder / "net.so")
    planter.replace_number(before, after)
    planter.write(folder / "wrong.so")
    assert [each.name for each in found(folder).tensors if not each.kept] == [tensor]


@pytest.mark.parametrize("tensor", ["less", "seen"])
def test_a_fault_in_a_call_is_located(folder: Path, tensor: str) -> None:
    planter = Planter(folder / "net.so")
    planter.exchange(tensor, 0, 1)
    planter.write(folder / "wrong.so")
    assert [each.name for each in found(folder).tensors if not each.kept] == [tensor]


@pytest.mark.parametrize(
    ("tensor", "change"),
    [
        ("wide_6", halves_swapped),
        ("each_6", next_channels),
        ("sum", one_missing),
        ("far", next_channels),
    ],
)
def test_a_fault_in_integers_is_located(folder: Path, tensor: str, change: Change) -> None:
    planter = Planter(folder / "integers.so")
    tensor = f"{tensor}_DequantizeLinear_Output"
    change(planter.weights(tensor)[WEIGHTS])
    planter.write(folder / "wrong.so")
    assert [each.name for each in found(folder, "integers").tensors if not each.kept] == [tensor]


@pytest.mark.parametrize("name", ["net", "integers"])
def test_no_fault_is_reported_in_a_right_artifact(folder: Path, name: str) -> None:
    report = found(folder, name, name)
    assert report.first is None
    assert len(report.tensors) > 10
    assert report.tensors[-1].name == "y"
    # Relax has underscores in place of dots.
    assert name != "net" or "both.parts" in [each.name for each in report.tensors]


def test_a_fault_in_shuffled_channels_is_located(folder: Path) -> None:
    onnx.save(shuffled_network(), folder / "order.onnx")
    with neocpu.compile(str(folder / "order.onnx"), threads=1, verify=False) as compiled:
        compiled.export(folder / "order.so")
    planter = Planter(folder / "order.so")
    assert any(value.order for value in planter.values.values())
    right = found(folder, "order", "order")
    assert right.first is None
    assert {"first", "a_one", "a_two", "b_one", "b_two"} <= {each.name for each in right.tensors}
    next_channels(planter.weights("b_two")[WEIGHTS])
    planter.write(folder / "wrong.so")
    report = found(folder, "order")
    assert [each.name for each in report.tensors if not each.kept] == ["b_two"]


def test_a_fault_is_located_by_comparing_two_artifacts(folder: Path) -> None:
    planter = Planter(folder / "net.so")
    stale_scale(planter.weights("one")[WEIGHTS])
    wrong = planter.write(folder / "wrong.so")
    report = compare_artifacts(folder / "net.so", wrong, ComparisonInputs(), threads=1)
    assert [each.name for each in report.tensors if not each.kept] == ["one"]
    again = compare_artifacts(wrong, wrong, ComparisonInputs(), threads=1)
    assert {each.own_error for each in again.tensors} == {0.0}
