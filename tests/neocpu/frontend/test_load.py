"""Reading, checking and freezing models, and every way they can be wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import needs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import ModelError, NeoCPUError, UnsupportedError, UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend import source
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.frontend.shapes.static_shapes import static_dims
from tests.neocpu.frontend.differential import make_model, one_op, random
from tests.neocpu.frontend.onnx_models import onnx_model
from tests.text_models import nodes_of


def conv_model(*dims: int | str | None, weights: int = 4) -> onnx.ModelProto:
    """Return Conv + Relu with the given input dimensions and a symbolic output."""
    nodes = "[stem] c = Conv(image, w) out = Relu(c)"
    weights = {"w": random(weights, 3, 3, 3)}
    return onnx_model(nodes, {"image": dims}, {"out": ["n", 4, "h", "w"]}, weights)


def failure(error: type[NeoCPUError], *args, **kwargs) -> str:
    """Return the one-line message of the error that loading raises."""
    with pytest.raises(error) as caught:
        load_model(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def saved(tmp_path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(conv_model(1, 3, 8, 8), path)
    return path


def test_path_bytes_and_proto_give_the_same(saved):
    models = [saved, str(saved), saved.read_bytes(), onnx.load(saved)]
    loaded = [load_model(model) for model in models]
    assert [model.name for model in loaded] == ["net", "net", "little", "little"]
    for model in loaded:
        assert model.inputs == (TensorSpec("image", "float32", (1, 3, 8, 8)),)
        assert model.outputs == (TensorSpec("out", "float32", (1, 4, 6, 6)),)
        assert static_dims(model.original.graph.output[0]) == (1, 4, 6, 6)


def test_the_callers_proto_is_left_alone():
    model = conv_model("n", 3, 8, 8)
    before = model.SerializeToString(deterministic=True)
    load_model(model, {"image": (2, 3, 8, 8)})
    assert model.SerializeToString(deterministic=True) == before


def test_original_keeps_nodes_opset_and_weights(saved):
    given = onnx.load(saved)
    original = load_model(saved).original
    assert original.graph.node == given.graph.node
    assert original.graph.initializer == given.graph.initializer
    assert original.opset_import == given.opset_import


def test_initializers_listed_as_inputs_are_not_inputs():
    model = conv_model(1, 3, 8, 8)
    model.ir_version = 3
    model.opset_import[0].version = 8
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3, 3, 3]))
    loaded = load_model(model)
    assert [spec.name for spec in loaded.inputs] == ["image"]
    assert len(import_relax(loaded)["main"].params) == 1


def test_loading_needs_no_compiler(saved):
    code = (
        "import sys; from neocpu.frontend.load import load_model; load_model(sys.argv[1]);"
        "print(sorted({'tvm', 'onnxruntime'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
    assert result.stderr == ""


class TestFiles:
    def test_missing(self, tmp_path):
        path = tmp_path / "none.onnx"
        assert failure(ModelError, path) == f"no such model file: '{path}'"

    def test_folder(self, tmp_path):
        assert "is a folder" in failure(ModelError, tmp_path)

    @needs.ordinary_user()
    def test_unreadable(self, saved):
        saved.chmod(0)
        assert "Permission denied" in failure(ModelError, saved)

    def test_read_error(self, saved, monkeypatch):
        def refuse(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(source, "read_file", refuse)
        message = failure(ModelError, saved)
        assert message == f"cannot read the model '{saved}': Permission denied"

    @pytest.mark.parametrize("path", ["/dev/zero", "/dev/full", "/dev/null", "/proc/kmsg", "pipe"])
    def test_endless_files_are_refused(self, tmp_path, monkeypatch, path):
        monkeypatch.chdir(tmp_path)
        os.mkfifo("pipe")
        message = failure(ModelError, path)
        assert "not a file" in message or "is empty" in message

    def test_too_large(self, tmp_path):
        path = tmp_path / "sparse.onnx"
        with path.open("wb") as file:
            file.truncate(source.MAX_BYTES + 1)
        assert failure(ModelError, path) == (
            f"cannot read the model '{path}': it has more than 2147 MB"
        )

    def test_a_pipe_without_a_name(self, saved):
        with subprocess.Popen(["cat", saved], stdout=subprocess.PIPE) as cat:
            loaded = load_model(f"/dev/fd/{cat.stdout.fileno()}")
        assert loaded.inputs == load_model(saved).inputs

    def test_a_pipe_that_has_no_end(self, monkeypatch):
        monkeypatch.setattr(source, "MAX_BYTES", 1 << 20)
        with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as cat:
            message = failure(ModelError, f"/dev/fd/{cat.stdout.fileno()}")
            cat.kill()
        assert "it has more than 1 MB" in message

    def test_empty(self, tmp_path):
        path = tmp_path / "empty.onnx"
        path.touch()
        assert f"'{path}' is empty" in failure(ModelError, path)
        assert "is empty" in failure(ModelError, b"")

    @pytest.mark.parametrize("keep", [0.2, 0.5, 0.9, 0.99])
    def test_truncated(self, saved, keep):
        data = saved.read_bytes()
        saved.write_bytes(data[: int(len(data) * keep)])
        assert str(saved) in failure(ModelError, saved)

    @pytest.mark.parametrize("data", [b"not a model", b"\x00" * 64, b"PK\x03\x04" * 20, b"{}"])
    def test_not_onnx(self, tmp_path, data):
        path = tmp_path / "net.onnx"
        path.write_bytes(data)
        assert f"'{path}' is not an ONNX model" in failure(ModelError, path)


class TestChecker:
    def test_invalid_graph(self, saved):
        model = onnx.load(saved)
        model.graph.node[1].input[0] = "nowhere"
        onnx.save(model, saved)
        message = failure(ModelError, saved)
        assert message.startswith(f"'{saved}' is not a valid ONNX model: ")
        assert "nowhere" in message or "topologically" in message

    def test_weight_of_the_wrong_size(self):
        model = conv_model(1, 3, 8, 8, weights=64)
        weight = model.graph.initializer[0]
        weight.raw_data = weight.raw_data[:-4]
        message = failure(ModelError, model)
        assert "tensor 'w' holds 6908 bytes, its shape and type need 6912" in message

    def test_segments_and_raw_strings(self):
        model = conv_model(1, 3, 8, 8, weights=64)
        model.graph.initializer[0].segment.end = 1728
        assert "one segment of a larger tensor" in failure(ModelError, model)
        model.graph.initializer[0].ClearField("segment")
        model.graph.initializer[0].data_type = TensorProto.STRING
        assert "holds strings as raw bytes" in failure(ModelError, model)

    def test_contradicting_shapes(self):
        model = conv_model(1, 5, 8, 8)
        with pytest.raises(NeoCPUError):
            import_relax(load_model(model))


class TestExternalData:
    @pytest.fixture
    def external(self, tmp_path) -> Path:
        path = tmp_path / "net.onnx"
        model = conv_model(1, 3, 8, 8, weights=64)
        onnx.save(model, path, save_as_external_data=True, location="net.data", size_threshold=0)
        return path

    def test_is_read(self, external):
        (weight,) = load_model(external).original.graph.initializer
        np.testing.assert_array_equal(numpy_helper.to_array(weight), random(64, 3, 3, 3))

    def test_more_than_there_is_memory_for(self, external):
        """A sparse file takes no disk, and a tensor without a length takes the whole file."""
        os.truncate(external.parent / "net.data", 1 << 43)
        model = onnx.load(external, load_external_data=False)
        entries = model.graph.initializer[0].external_data
        kept = [(entry.key, entry.value) for entry in entries if entry.key != "length"]
        del entries[:]
        for key, value in kept:
            entries.add(key=key, value=value)
        model.graph.initializer[0].dims[:] = [1 << 41]
        external.write_bytes(model.SerializeToString())
        assert re.fullmatch(
            rf"cannot read the external data of '{external}': its tensors take 8796\.1 GB of "
            r"memory, of which this process may use [\d.]+ GB",
            failure(ModelError, external),
        )

    def test_symbolic_link_out_of_the_folder(self, external, tmp_path):
        inner = tmp_path / "inner"
        inner.mkdir()
        moved = external.rename(inner / "net.onnx")
        (inner / "net.data").symlink_to(tmp_path / "net.data")
        assert "external data" in failure(ModelError, moved)

    @pytest.mark.parametrize(
        ("key", "value", "said"),
        [
            ("location", "../net.data", "outside the model's folder"),
            ("location", "/net.data", "outside the model's folder"),
            ("location", "a/" * 3000 + "a", "too long"),
            ("location", "net.data\0x", r"'net.data\x00x', whose name has unprintable characters"),
            ("location", "", "names no file for its data"),
            ("location", "net.data\n", r"lies in 'net.data\n', whose name has"),
            ("location", "net\x1b.data", r"lies in 'net\x1b.data', whose name has"),
            ("location", "net\u202e.data", r"lies in 'net\u202e.data', whose name has"),
            ("location", "..\\net.data", "outside the model's folder"),
            ("location", "w" * 5000, "w…': File name too long"),
            ("location", "inner", "it is a folder, not a file"),
            ("location", "nowhere", "lies in 'nowhere', which is missing in the model's folder"),
            ("offset", "-4", "has the offset '-4', which is not a number of bytes"),
            ("offset", "nan", "has the offset 'nan'"),
            ("offset", "9" * 30, "which is not a number of bytes"),
            ("offset", "4", "needs byte 6916 of 'net.data', which has 6912"),
            ("offset", "1000000", "needs byte 1006912 of 'net.data', which has 6912"),
            ("length", "x", "has the length 'x'"),
            ("length", "1000000", "needs byte 1000000 of 'net.data', which has 6912"),
            ("length", "4", "has 4 bytes in 'net.data', its shape and type need 6912"),
        ],
    )
    def test_invalid_places_of_weights_are_refused(self, external, key, value, said):
        (external.parent / "inner").mkdir()
        model = onnx.load(external, load_external_data=False)
        entries = model.graph.initializer[0].external_data
        for entry in [entry for entry in entries if entry.key == key]:
            entries.remove(entry)
        entries.add(key=key, value=value)
        external.write_bytes(model.SerializeToString())
        message = failure(ModelError, external)
        assert message.startswith(f"cannot read the external data of '{external}': tensor 'w' ")
        assert said in message
        assert len(message) < 600

    def test_weights_that_are_too_large_are_not_read(self, external):
        """The file is sparse: a terabyte of zeros."""
        with (external.parent / "net.data").open("wb") as file:
            file.truncate(1 << 40)
        model = onnx.load(external, load_external_data=False)
        del model.graph.initializer[0].external_data[1:]
        external.write_bytes(model.SerializeToString())
        assert "has 1099511627776 bytes in 'net.data'" in failure(ModelError, external)

    def test_keys_that_are_unknown_are_left_out(self, external):
        model = onnx.load(external, load_external_data=False)
        model.graph.initializer[0].external_data.add(key="colour", value="blue")
        external.write_bytes(model.SerializeToString())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load_model(external)

    def test_without_a_folder(self, external):
        message = failure(ModelError, external.read_bytes())
        assert "give the path of the .onnx file" in message

    @pytest.mark.parametrize("in_function", [False, True])
    def test_of_nodes_is_not_looked_for_in_the_working_directory(
        self, in_function, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        Path("secret.bin").write_bytes(bytes(16))
        tensor = TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="secret.bin")
        constant = helper.make_node("Constant", [], ["w"], value=tensor)
        add = helper.make_node("Add", ["x", "w"], ["y"])
        call = helper.make_node("f", ["x"], ["y"], domain="local")
        sets = [helper.make_opsetid("", 18)]
        function = helper.make_function("local", "f", ["x"], ["y"], [constant, add], sets)
        model = onnx_model(
            [call] if in_function else [constant, add],
            {"x": [4]},
            {"y": [4]},
            domains=["local"],
            functions=[function] if in_function else [],
        )
        for given in (model, model.SerializeToString()):
            assert "external files" in failure(ModelError, given)


class TestShapes:
    def test_dynamic_batch(self):
        message = failure(ModelError, conv_model("batch", 3, 224, 224))
        assert "input 'image' has shape [batch, 3, 224, 224]" in message
        assert "dynamic dimension 0 ('batch')" in message
        assert message.endswith("fix it with shapes={'image': (1, 3, 224, 224)} or batch=1")

    def test_unknown_input(self):
        message = failure(UsageError, conv_model("n", 3, 8, 8), {"imgae": (1, 3, 8, 8)})
        assert "'imgae'" in message
        assert "did you mean 'image'?" in message
        assert "the inputs are 'image'" in failure(UsageError, conv_model(1, 3, 8, 8), {"q": (1,)})

    def test_wrong_rank(self):
        message = failure(UsageError, conv_model("n", 3, 8, 8), {"image": (3, 8, 8)})
        assert "has 3 dimensions; input 'image' has 4: [n, 3, 8, 8]" in message

    def test_contradiction(self):
        message = failure(UsageError, conv_model("n", 3, 8, 8), {"image": (1, 4, 8, 8)})
        assert "the model fixes dimension 1 of 'image' to 3" in message

    @pytest.mark.parametrize("extent", [0, -1])
    def test_not_positive(self, extent):
        message = failure(UsageError, conv_model("n", 3, 8, 8), {"image": (extent, 3, 8, 8)})
        assert f"dimensions must be at least 1, got {extent}" in message

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("STRING", "input 'x' holds strings"),
            ("COMPLEX64", "which modules do not take"),
            ("FLOAT8E4M3FN", "which modules do not take"),
        ],
    )
    def test_numbers_modules_do_not_take_are_refused(self, name, said):
        typed = TensorProto.DataType.Value(name), [1]
        nodes = [helper.make_node("Identity", ["x"], ["y"])]
        model = onnx_model(nodes, {"x": typed}, {"y": typed}, opset=19)
        assert said in failure(UnsupportedError, model)


class TestUnsupported:
    def test_all_are_listed_at_once(self):
        x = random(1, 3)
        nodes = nodes_of("[det] d = Det(m) [first] a = Relux(x) b = Relux(a) y = Frobnicate(b)")
        model = make_model(nodes, {"x": x, "m": random(2, 2)}, outputs=["d"])
        message = failure(UnsupportedError, model)
        assert message.startswith("unsupported operators: ")
        assert "Frobnicate (1x, first 'y'" in message
        assert "Relux (2x, first 'first'; did you mean 'Relu'?)" in message

    def test_known_to_onnx_but_not_importable(self):
        x = random(1, 3, 3)
        nodes = nodes_of("[coin] d = Bernoulli(x) [noise] n = RandomUniformLike(x)")
        with pytest.raises(UnsupportedError) as caught:
            import_relax(load_model(make_model(nodes, {"x": x}, outputs=["d", "n"])))
        message = str(caught.value)
        assert "Bernoulli (1x, first 'coin'; outputs would be random" in message
        assert "RandomUniformLike (1x, first 'noise'" in message

    def test_custom_domain(self):
        node = helper.make_node("Magic", ["x"], ["y"], domain="com.acme", name="spell")
        model = onnx_model([node], {"x": [1, 3]}, {"y": [1, 3]}, domains=["com.acme"])
        with pytest.raises(UnsupportedError, match=r"com.acme::Magic \(1x, first 'spell'; add it"):
            import_relax(load_model(model))

    def test_a_form_of_a_node_is_named_with_its_cause(self, capfd):
        model = one_op("LpNormalization", random(2, 3), p=3)
        with pytest.raises(UnsupportedError) as caught:
            import_relax(load_model(model))
        assert str(caught.value) == (
            "cannot compile LpNormalization 'the_node': its p 3 is neither 1 nor 2"
        )
        assert capfd.readouterr() == ("", "")

    def test_local_functions_are_not_unknown(self):
        add = helper.make_node("Add", ["a", "a"], ["b"])
        sets = [helper.make_opsetid("", 18)]
        body = helper.make_function("own", "Twice", ["a"], ["b"], [add], sets)
        call = helper.make_node("Twice", ["x"], ["y"], domain="own")
        given = {"domains": ["own"], "functions": [body]}
        model = onnx_model([call], {"x": [2]}, {"y": [2]}, **given)
        assert [node.op_type for node in load_model(model).simplified.graph.node] == ["Add"]
