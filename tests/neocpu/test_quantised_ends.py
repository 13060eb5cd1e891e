"""Models whose inputs and outputs are bytes run equally, bit for bit, in every way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import needs
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.quantization import QuantType
from server_process import ServerProcess
from v2_requests import Connection, binary_tensor, body, tensor

import neocpu
from neocpu.cli.main import main
from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec, random_inputs
from neocpu.runtime.bundle.write_bundle import write_bundle
from tests.neocpu.quantised_models import SHAPE, network, quantised
from tests.neocpu.runtime.bundle.conftest import build


@dataclass(frozen=True)
class Case:
    """A compiled model of bytes, an input, and ONNX Runtime's output."""

    model: onnx.ModelProto
    artifact: Path
    x: np.ndarray
    y: np.ndarray


def of_bytes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a QDQ model without the first QuantizeLinear and the last DequantizeLinear."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    types = {each.name: each.data_type for each in graph.initializer}
    (first,) = (n for n in graph.node if n.input[0] == "x")
    (last,) = (n for n in graph.node if n.output[0] == "y")
    for node in (first, last):
        graph.node.remove(node)
    ends = ((graph.input, first.output[0], first, SHAPE), (graph.output, last.input[0], last, None))
    for values, name, node, shape in ends:
        del values[:]
        values.append(helper.make_tensor_value_info(name, types[node.input[2]], shape))
    return onnx.shape_inference.infer_shapes(found)


@pytest.fixture(scope="module", params=[QuantType.QUInt8, QuantType.QInt8], ids=["uint8", "int8"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    model = of_bytes(quantised(network(), activations=request.param))
    path = tmp_path_factory.mktemp("bytes") / "bytes.so"
    with neocpu.compile(model, precision="int8", small=True, threads=2) as compiled:
        assert compiled.verification is not None
        (spec,) = compiled.header.inputs
        compiled.export(path)
    x = random_inputs([spec], 1)[spec.name]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return Case(model, path, x, session.run(None, {spec.name: x})[0])


def check(case: Case, found: np.ndarray) -> None:
    assert found.dtype == case.y.dtype
    np.testing.assert_array_equal(found, case.y)


def test_python(case: Case) -> None:
    with neocpu.load(case.artifact) as module:
        assert module.inputs[0].dtype == module.outputs[0].dtype == case.x.dtype.name
        check(case, module(case.x))
        with pytest.raises(UsageError, match=case.x.dtype.name):
            module(case.x.astype(np.float32))


@pytest.mark.parametrize("precision", ["auto", "fp32"])
@needs.one_in(2)
def test_other_precisions(case: Case, precision: str) -> None:
    with neocpu.compile(case.model, precision=precision, threads=2) as compiled:
        check(case, compiled.module()(case.x))


def test_run(case: Case, tmp_path: Path) -> None:
    x, y = tmp_path / "x.npy", tmp_path / "y.npz"
    np.save(x, case.x)
    assert main(["run", str(case.artifact), "--input", str(x), "-o", str(y), "-q"]) == 0
    with np.load(y) as arrays:
        check(case, arrays[arrays.files[0]])


def test_c(case: Case, tmp_path: Path) -> None:
    write_bundle(case.artifact, tmp_path / "bundle")
    built = build(tmp_path / "bundle", "-O1")
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, case.x)
    done = built.run("neocpu_run", case.artifact, x, "-o", y)
    assert done.returncode == 0, done.stderr
    check(case, np.load(y))


def test_served(case: Case) -> None:
    name = case.model.graph.input[0].name
    with ServerProcess(case.artifact) as server, Connection(server.address) as client:
        path = f"/v2/models/{case.artifact.stem}/infer"
        answer = client.post(path, body(tensor(name, case.x)))
        (output,) = answer.document["outputs"]
        assert output["datatype"] == case.y.dtype.name.upper()
        np.testing.assert_array_equal(output["data"], case.y.reshape(-1))
        text = body(binary_tensor(name, case.x))
        answer = client.post(path, text + case.x.tobytes(), len(text))
        np.testing.assert_array_equal(answer.document["outputs"][0]["data"], case.y.reshape(-1))


def test_bench(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(case.artifact), "--rounds", "2", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["results"]


@pytest.mark.parametrize(("dtype", "least", "most"), [("uint8", 0, 255), ("int8", -128, 127)])
def test_random_inputs_of_bytes_cover_all_values(dtype: str, least: int, most: int) -> None:
    """Inputs of zeros and ones would verify a model of bytes by two values only."""
    (array,) = random_inputs([TensorSpec("x", dtype, (100, 100))], 0).values()
    assert (array.dtype.name, array.min(), array.max()) == (dtype, least, most)
    (indices,) = random_inputs([TensorSpec("x", "int64", (100, 100))], 0).values()
    assert set(np.unique(indices)) == {0, 1}
