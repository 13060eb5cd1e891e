"""Kernels compiled on several CPUs: the same code, one error, and nothing left behind."""

import hashlib
import threading

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import te

import neocpu
from neocpu import parallel_codegen
from neocpu.parallel_codegen import compile_objects
from neocpu.runtime.artifact import read_header
from neocpu.runtime.elf import read_elf
from neocpu.schedules.errors import NeoCPUError
from neocpu.schedules.target import host_target
from neocpu.tensor_spec import random_inputs

HOST = host_target()


def kernels(count: int) -> tvm.IRModule:
    """Functions ``k00``, ``k01``, … of as many sizes."""
    functions = {}
    for number in range(count):
        a = te.placeholder((64 + number,), name="a")
        b = te.compute(a.shape, lambda i: a[i] + 1.0, name="b")  # noqa: B023
        name = f"k{number:02d}"
        functions[name] = te.create_prim_func([a, b]).with_attr("global_symbol", name)
    return tvm.IRModule(functions)


def chain() -> onnx.ModelProto:
    """Four convolutions of different widths."""
    rng = np.random.default_rng(0)
    nodes, weights, channels = [], [], 3
    for number, outputs in enumerate((8, 16, 24, 32)):
        array = rng.normal(size=(outputs, channels, 3, 3)).astype(np.float32) / (3 * channels**0.5)
        weights.append(numpy_helper.from_array(array, f"w{number}"))
        inputs = [f"x{number}", f"w{number}"]
        nodes.append(helper.make_node("Conv", inputs, [f"x{number + 1}"], pads=[1] * 4))
        channels = outputs
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("x4", TensorProto.FLOAT, [1, 32, 8, 8])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture
def one_by_one(monkeypatch):
    """Groups of one function, so that small modules have several."""
    monkeypatch.setattr(parallel_codegen, "GROUP_SIZE", 1)


@pytest.mark.usefixtures("one_by_one")
def test_objects_do_not_depend_on_the_number_of_cpus(tmp_path):
    digests = []
    for workers in (1, 3):
        digests.append([])
        for index, module in enumerate(compile_objects(kernels(5), HOST, workers)):
            path = tmp_path / f"{index}.o"
            module.write_to_file(str(path))
            digests[-1].append(hashlib.sha256(path.read_bytes()).hexdigest())
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 5


@pytest.mark.usefixtures("one_by_one")
def test_a_network_does_not_depend_on_the_number_of_cpus(monkeypatch):
    results, codes = [], []
    for cpus in (1, 3):
        monkeypatch.setattr("neocpu.compiler.usable_cpus", lambda cpus=cpus: cpus)
        with neocpu.compile(chain(), threads=1, verify=False) as compiled:
            data = memoryview(compiled.path.read_bytes())
            text = read_elf(data).find(".text")
            codes.append(bytes(data[text.offset : text.offset + text.size]))
            with compiled.module() as module:
                results.append(module.run(random_inputs(module.inputs, seed=0))["x4"])
    assert codes[0] == codes[1]
    np.testing.assert_array_equal(*results)


def failing(monkeypatch, bad: str):
    """Make code generation fail for the kernel called ``bad``; return what it was asked for."""
    real, asked = tvm.tirx.build, []

    def build(mod, *args, **options):
        names = [var.name_hint for var in mod.get_global_vars()]
        asked.extend(names)
        if bad in names:
            raise RuntimeError("stack\nLLVM has had enough")
        return real(mod, *args, **options)

    monkeypatch.setattr(tvm.tirx, "build", build)
    return asked


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("size", [1, 4])
def test_a_failure_is_one_line_that_names_the_kernel(monkeypatch, size, workers):
    monkeypatch.setattr(parallel_codegen, "GROUP_SIZE", size)
    failing(monkeypatch, "k02")
    with pytest.raises(NeoCPUError, match=r"kernel 'k02': .*LLVM has had enough") as caught:
        compile_objects(kernels(6), HOST, workers)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("one_by_one")
def test_after_a_failure_nothing_more_starts_and_no_thread_is_left(monkeypatch):
    asked = failing(monkeypatch, "k00")
    with pytest.raises(NeoCPUError):
        compile_objects(kernels(80), HOST, 2)
    assert len(asked) < 80
    assert not [t for t in threading.enumerate() if t.name.startswith("neocpu-codegen")]


def test_the_artifact_says_how_long_each_phase_took_and_what_verification_found(tmp_path):
    with neocpu.compile(chain(), threads=1) as compiled:
        compiled.export(tmp_path / "chain.so")
    header = read_header(tmp_path / "chain.so", verify_weights=True)
    assert header == compiled.header
    phases = {phase["name"]: phase["seconds"] for phase in header.plan["passes"]}
    assert phases == compiled.seconds
    assert {"import", "build", "link", "verify"} <= set(phases)
    check = compiled.verification
    assert header.plan["verification"]["max_abs_error"] == check.max_abs_error > 0
    assert header.plan["verification"]["max_rel_error"] == check.max_rel_error
