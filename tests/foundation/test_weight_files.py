"""The external weight files that a model names; files of other kinds name none."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.weight_files import weight_files


def model() -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(np.full((3,), value, np.float32), name)
        for value, name in ((1, "a"), (2, "b"))
    ]
    output = helper.make_tensor_value_info("sum", TensorProto.FLOAT, [3])
    node = helper.make_node("Add", ["a", "b"], ["sum"])
    return helper.make_model(helper.make_graph([node], "net", [], [output], weights))


@pytest.mark.parametrize("name", ["net.onnx.data", "w" * 127, "w" * 128, "é" * 100, "in/weights"])
def test_external_weight_files_of_a_model_are_found(tmp_path, name):
    (tmp_path / "in").mkdir()
    external = {"save_as_external_data": True, "location": name, "size_threshold": 0}
    onnx.save(model(), tmp_path / "net.onnx", **external)
    assert [*weight_files(tmp_path / "net.onnx")] == [str(tmp_path / name)] * 2


def test_files_that_are_no_models_have_no_weight_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "whole.onnx")
    entry = b"\n\x08location\x12"
    others = {
        "empty": b"",
        "other": b"\x7fELF" + entry + b"\x01w",
        "cut": b"\x08" + entry,
        "nameless": b"\x08" + entry + b"\x00w",
        "not_a_name": b"\x08" + entry + b"\x02\x00w",
    }
    for name, data in others.items():
        (tmp_path / name).write_bytes(data)
    os.mkfifo("pipe")  # which must not be waited for
    for name in ("whole.onnx", *others, "pipe", "missing", "."):
        assert [*weight_files(name)] == []
