"""Cached machine code gives the same artifact bit for bit, from any process."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
import tvm
from differential import make_model
from onnx import helper
from tvm import te

import neocpu
from neocpu.building import object_cache, parallel_codegen
from neocpu.building.elf import read_elf, with_symbols_renamed
from neocpu.building.object_cache import (
    FOLDER_VARIABLE,
    SYMBOL,
    anonymous,
    key_of,
    open_object_cache,
)
from neocpu.building.parallel_codegen import CodeGeneration
from neocpu.runtime.header import HEADER_SECTION
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.target_parsing import host_target, parse_target

HOST = host_target()


@pytest.fixture(autouse=True, name="folder")
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "objects"


@pytest.fixture(name="generated")
def _generated(monkeypatch, tmp_path):
    """Return the names of the kernels whose code was generated since the last call."""
    real, log = parallel_codegen._do, tmp_path / "generated"
    log.touch()

    def do(job, target):
        with log.open("a") as file:
            file.write(f"{job.name}\n")
        real(job, target)

    def names() -> list[str]:
        found = sorted(log.read_text().split())
        log.write_text("")
        return found

    monkeypatch.setattr(parallel_codegen, "_do", do)
    return names


def model(names: str, channels: int = 8) -> onnx.ModelProto:
    """A convolution, a pooling and a generic kernel, on tensors with such names."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(channels, 3, 3, 3)).astype("float32")
    x, w, c, p, s, y = (f"{names}{number}" for number in range(6))
    nodes = [
        helper.make_node("Conv", [x, w], [c], pads=[1] * 4),
        helper.make_node("MaxPool", [c], [p], kernel_shape=[2, 2]),
        helper.make_node("Softmax", [p], [s], axis=-1),
        helper.make_node("Exp", [s], [y]),
    ]
    return make_model(nodes, {x: np.zeros((1, 3, 8, 8), "float32")}, {w: weights}, [y])


def body(network: onnx.ModelProto, target="host") -> bytes:
    """Return the code and the weights of an artifact: all but its header, which has times."""
    with neocpu.compile(network, target=target, threads=1, verify=False) as compiled:
        data = compiled.path.read_bytes()
    header = read_elf(memoryview(data)).find(HEADER_SECTION)
    return data[64 : header.offset]  # the positions of tables in the file's own header


def test_an_artifact_is_the_same_cold_warm_and_without_a_cache(generated, monkeypatch):
    cold = body(model("a"))
    assert len(generated()) >= 3
    warm = body(model("a"))
    assert generated() == []
    monkeypatch.setenv(FOLDER_VARIABLE, "off")
    without = body(model("a"))
    assert len(generated()) >= 3
    assert cold == warm == without
    assert len(cold) > 1000


def test_networks_share_the_code_of_equal_kernels(generated):
    body(model("a"))
    generated()
    body(model("other"))
    assert generated() == []
    body(model("a", 16))
    assert "conv2d_0" in generated()


def test_another_target_has_code_of_its_own(generated):
    for target in ("sse", "avx2") if HOST.machine == "x86_64" else ("generic", "cortex-a72"):
        body(model("a"), target)
        assert "conv2d_0" in generated()


def test_another_version_of_the_generator_finds_nothing(generated, monkeypatch):
    body(model("a"))
    generated()
    monkeypatch.setattr(object_cache, "_generator", lambda: "newer")
    body(model("a"))
    assert "conv2d_0" in generated()


def test_damaged_code_is_generated_anew(generated, folder, caplog):
    expected = body(model("a"))
    count = len(generated())
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert body(model("a")) == expected
    assert len(generated()) == count
    assert all("is damaged" in message for message in caplog.messages)
    assert body(model("a")) == expected
    assert generated() == []


def test_two_processes_at_once_compile_the_same(folder, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model("a"), path)
    outputs = [tmp_path / "0.so", tmp_path / "1.so"]
    command = [sys.executable, "-m", "neocpu", "compile", str(path), "--threads", "1", "-o"]
    running = [
        subprocess.Popen([*command, str(output)], stderr=subprocess.PIPE) for output in outputs
    ]
    for process in running:
        assert b"kept" not in process.communicate()[1]
        assert process.returncode == 0
    with neocpu.load(outputs[0]) as one, neocpu.load(outputs[1]) as other:
        x = np.ones((1, 3, 8, 8), "float32")
        np.testing.assert_array_equal(one(x), other(x))
    assert all(len(path.name) == 64 for path in folder.iterdir())


@pytest.mark.usefixtures("caplog")  # it warns of the function that is compiled without its schedule
def test_code_that_does_not_compile_is_not_kept(folder, monkeypatch):
    real = parallel_codegen._do

    def do(job, target):
        if not job.plain:
            raise RuntimeError("LLVM has had enough")
        real(job, target)

    monkeypatch.setattr(parallel_codegen, "_do", do)
    body(model("a"))
    assert not any(b"\x7fELF" in path.read_bytes() for path in folder.iterdir())


def test_schemes_and_estimates_are_kept_and_choose_the_same(monkeypatch):
    def choices():
        with neocpu.compile(model("a", 40), threads=2, verify=False) as compiled:
            return compiled.plan.ops

    cold = choices()
    real = registry.schemes

    def never(*arguments):
        raise AssertionError("estimated again")

    monkeypatch.setattr(registry, "schemes", never)
    assert choices() == cold
    monkeypatch.setattr(registry, "schemes", real)
    monkeypatch.setenv(FOLDER_VARIABLE, "off")
    assert choices() == cold


def test_code_of_a_user_without_a_home_is_not_kept(monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert open_object_cache() is None
    monkeypatch.setenv(FOLDER_VARIABLE, "off")
    assert open_object_cache() is None


def adding(amount: float, size: int = 64) -> tvm.tirx.PrimFunc:
    a = te.placeholder((size,), name="a")
    b = te.compute(a.shape, lambda i: a[i] + amount, name="b")
    return anonymous(te.create_prim_func([a, b]))


def test_different_functions_and_targets_have_different_keys():
    functions = [adding(1.0), adding(2.0), adding(1.0, 65)]
    targets = [HOST, parse_target(f"llvm -mcpu={HOST.mcpu}") if HOST.mcpu else HOST]
    keys = {key_of(function, HOST) for function in functions}
    assert len(keys) == 3
    assert key_of(adding(1.0), HOST) in keys
    assert len({key_of(functions[0], target) for target in targets}) == len(set(targets))


def test_equal_functions_are_generated_once(generated):
    functions = {name: adding(1.0).with_attr("global_symbol", name) for name in ("one", "two")}
    with CodeGeneration(tvm.IRModule(functions), HOST, 1) as generation:
        generation.start()
        codes = generation.codes()
    one, two = (with_symbols_renamed(each.code, SYMBOL, name) for name, each in codes.items())
    assert generated() == ["one"]
    assert b"__tvm_ffi_one\0" in one
    assert b"__tvm_ffi_two\0" in two
    assert codes.keys() == {"one", "two"}
