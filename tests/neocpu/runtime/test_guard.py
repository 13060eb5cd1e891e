"""Runs between inaccessible pages: the same results, and no step beside a tensor survives."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import needs
import numpy as np
import pytest

from neocpu.building.link import write_artifact
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.aligned_memory import address_of, aligned_empty
from neocpu.runtime.guarding import GUARD_VARIABLE, is_guarded
from neocpu.runtime.guarding.guard import Guard
from neocpu.runtime.guarding.guarded_memory import EDGES, FENCE, GuardedMemory, guarded
from neocpu.runtime.guarding.kernel_calls import Function, Kernel, Tensor, Value
from neocpu.runtime.module import load

SIZES = [1, 4, 63, 64, 65, mmap.PAGESIZE, mmap.PAGESIZE + 4, 3 * mmap.PAGESIZE - 64]


def signal_of(function: Callable[[], object]) -> int:
    """Return the signal that ends a child which calls ``function``, or 0."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        try:
            function()
        finally:
            os._exit(0)
    return -min(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def touch(address: int, *, write: bool = False) -> int:
    def access() -> None:
        cell = ctypes.c_ubyte.from_address(address)
        if write:
            cell.value = 1
        assert cell.value >= 0

    return signal_of(access)


class TestMemory:
    @pytest.mark.parametrize("size", SIZES)
    def test_fences(self, size):
        slack = -size % 64
        end, beginning = (GuardedMemory(size, edge) for edge in EDGES)
        for memory in (end, beginning):
            assert memory.address % 64 == 0
            assert memory.content.size == size
            assert touch(memory.address, write=True) == 0
            assert touch(memory.address + size - 1, write=True) == 0
        for distance in (0, 1000, FENCE - 1):
            assert touch(end.address + size + slack + distance) == signal.SIGSEGV
            assert touch(beginning.address - 1 - distance) == signal.SIGSEGV

    @pytest.mark.parametrize("edge", EDGES)
    @pytest.mark.parametrize("size", [1, 65, 4000])
    def test_writes_that_no_page_stops_are_found(self, size, edge):
        memory = GuardedMemory(size, edge)
        memory.content[...] = 1
        assert memory.stray_write() is None
        for place, said in ((size, "behind the end"), (-1, "before the beginning")):
            memory = GuardedMemory(size, edge)
            if touch(memory.address + place):
                continue  # a page stops it
            ctypes.c_ubyte.from_address(memory.address + place).value = 1
            assert memory.stray_write() == said

    def test_skewed(self):
        memory = GuardedMemory(100, "beginning", skew=24)
        assert memory.address % mmap.PAGESIZE == 24
        ctypes.c_ubyte.from_address(memory.address - 1).value = 1
        assert memory.stray_write() == "before the beginning"

    @pytest.mark.parametrize("edge", EDGES)
    def test_read_only(self, edge):
        memory = guarded(np.arange(5.0), edge)
        memory.make_read_only()
        np.testing.assert_array_equal(memory.array((5,), float), np.arange(5.0))
        assert touch(memory.address + 39) == 0
        assert touch(memory.address + 39, write=True) == signal.SIGSEGV

    def test_it_goes_with_its_last_view(self):
        def count() -> int:
            with open("/proc/self/maps") as maps:
                return len(maps.readlines())

        view = guarded(np.zeros(5), "end").array((5,), float)[1:]
        assert not view.any()
        del view
        before = count()
        for _ in range(100):
            guarded(np.zeros(5), "end").array((5,), float)
        assert count() <= before + 3


def artifact(linear, folder, body, length=17):
    """An artifact of one kernel ``body(x, weights, output)`` over vectors of ``length`` floats."""
    from tvm import relax

    from neocpu.schedules.tir.builder import build_kernel
    from tests.neocpu.conftest import _header, build_module

    names = ("x", "weights", "output")
    kernel = build_kernel([(name, (length,), "float32") for name in names], body)
    builder = relax.BlockBuilder()
    kernel = builder.add_func(kernel, "culprit")
    kind = relax.TensorType((length,), "float32")
    x, weights = (relax.Var(name, kind) for name in names[:2])
    with builder.function("main", [x, weights]):
        with builder.dataflow():
            result = builder.emit_output(relax.call_tir(kernel, [x, weights], kind))
        builder.emit_func_output(result)
    spec = TensorSpec("x", "float32", (length,))
    header = _header("culprit", [spec], [TensorSpec("y", "float32", (length,))])
    path = folder / "culprit.so"
    write_artifact(build_module(builder.get()), [np.ones(length, np.float32)], header, path)
    return path


def sum_of(length=17, x=0, weights=0, output=0):
    """Return ``output[i] = x[i] + weights[i]`` with offset indices."""
    from tvm.tirx.script.builder import ir as T

    def body(a, b, c):
        with T.serial(length) as i:
            T.buffer_store(c, a[i + x] + b[i + weights], [i + output])

    return body


def through_workspace(length=17, store=0, read=0):
    """Return ``output[i] = x[i] + weights[i]`` through a workspace, with offset indices."""
    from tvm.tirx.script.builder import ir as T

    copies = 60

    def body(a, b, c):
        space = T.alloc_buffer((copies * length,), "float32", layout=None)
        T.buffer_store(space, 0.0, [0])  # else TVM would move the workspace along by ``store``
        with T.serial(copies * length) as i:
            T.buffer_store(space, a[i % length], [i + store])
        with T.serial(length) as i:
            T.buffer_store(c, space[i + (copies - 1) * length + read] + b[i], [i])

    return body


def from_workspace(length=17):
    """Return ``output[i] = weights[i]`` plus an unwritten element of a workspace."""
    from tvm.tirx.script.builder import ir as T

    def body(a, b, c):
        space = T.alloc_buffer((1000,), "float32", layout=None)
        with T.serial(1000) as i, T.If(a[0] > 0), T.Then():  # it is not
            T.buffer_store(space, a[0], [i])
        with T.serial(length) as i:
            T.buffer_store(c, space[i * 50] + b[i], [i])

    return body


def run_in_child(path) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys, numpy, neocpu\n"
        "with neocpu.load(sys.argv[1], threads=1) as module:\n"
        "    x = neocpu.aligned_empty(module.inputs[0].shape)\n"
        "    x[...] = numpy.arange(x.size)\n"
        "    assert (module(x) == x + 1).all()\n"
    )
    environment = {**os.environ, GUARD_VARIABLE: "1"}
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=120
    )


@pytest.mark.parametrize("length", [16, 17])
def test_what_keeps_to_its_tensors_passes(linear, tmp_path, length):
    for body in (sum_of(length), through_workspace(length)):
        done = run_in_child(artifact(linear, tmp_path, body, length))
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("length", "body", "said"),
    [
        (16, sum_of(16, x=1), "in kernel culprit, at the end of its tensors"),
        (16, sum_of(16, output=1), "in kernel culprit, at the end of its tensors"),
        (16, sum_of(16, x=-1), "in kernel culprit, at the beginning of its tensors"),
        (17, sum_of(17, weights=-1), "in kernel culprit, at the beginning of its tensors"),
        (17, sum_of(17, weights=100_000), "in kernel culprit, at the end of its tensors"),
        (16, sum_of(16, output=-1), "kernel culprit wrote before the beginning of argument 2 (16)"),
        (17, sum_of(17, x=1), "kernel culprit reads beside its arguments"),
        (17, sum_of(17, weights=1), "kernel culprit reads beside its arguments"),
        (17, sum_of(17, output=1), "kernel culprit wrote behind the end of argument 2 (17)"),
        (17, through_workspace(read=8), "in kernel culprit, at the end of its tensors"),
        (17, through_workspace(store=1), "kernel culprit wrote behind the end of a workspace"),
        (17, from_workspace(), "kernel culprit reads beside its arguments or what it never wrote"),
    ],
)  # fmt: skip
@needs.one_in(2)
def test_what_steps_out_is_named(linear, tmp_path, length, body, said):
    done = run_in_child(artifact(linear, tmp_path, body, length))
    assert said in done.stderr
    assert done.returncode == (-signal.SIGSEGV if said.startswith("in") else 1)


def test_a_kernel_may_not_write_inputs_or_weights(linear, tmp_path):
    from tvm.tirx.script.builder import ir as T

    for culprit in (0, 1):

        def body(*buffers, culprit=culprit):
            T.buffer_store(buffers[culprit], 1.0, [0])

        done = run_in_child(artifact(linear, tmp_path, body))
        assert done.returncode == -signal.SIGSEGV
        assert "in kernel culprit" in done.stderr


@pytest.mark.parametrize("value", ["", "0", "1"])
def test_the_variable(monkeypatch, value):
    monkeypatch.setenv(GUARD_VARIABLE, value)
    assert is_guarded() == (value == "1")


def test_the_same_results(linear, two_way, monkeypatch):
    for toy in (linear, two_way):
        inputs = toy.inputs()
        monkeypatch.delenv(GUARD_VARIABLE, raising=False)
        with toy_module(toy) as module:
            expected = module.run(named(toy, inputs))
        monkeypatch.setenv(GUARD_VARIABLE, "1")
        with toy_module(toy) as module:
            for _ in range(2):
                actual = module.run(named(toy, inputs))
                for name, array in expected.items():
                    assert actual[name].tobytes() == array.tobytes()


def test_inputs_stay_where_they_are_and_as_they_are(linear, monkeypatch):
    """Aligned ones are not copied: the guard must put their addresses back."""
    monkeypatch.setenv(GUARD_VARIABLE, "1")
    x = aligned_empty((4, 64))
    x[...] = linear.inputs()[0]
    x.flags.writeable = False
    before = x.tobytes(), address_of(x)
    with toy_module(linear) as module:
        np.testing.assert_allclose(module(x), *linear.reference(x), rtol=1e-5, atol=1e-5)
    assert (x.tobytes(), address_of(x)) == before


class OwnKernel:
    """A kernel in Python, and arguments of it: tensors of float32 at places in one array."""

    def __init__(self, function, memory, *spans, results=1):
        self.tensors = []
        for start, size in spans:
            extents = (ctypes.c_int64 * 1)(size)
            tensor = Tensor(data=address_of(memory[start:]), rank=1, bits=32, lanes=1)
            tensor.extents = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
            self.tensors.append(tensor)
        values = [Value(tensor=ctypes.pointer(tensor)) for tensor in self.tensors]
        self.arguments = (Value * len(values))(*values)

        def call(_, arguments, count, __):
            arrays = []
            for value, (_, size) in zip(arguments[:count], spans, strict=True):
                place = (ctypes.c_float * size).from_address(value.tensor.contents.data)
                arrays.append(np.ctypeslib.as_array(place))
            return function(*arrays) or 0

        sizes = (ctypes.c_uint64 * len(spans))(*(4 * size for _, size in spans))
        self.kernel = Kernel(
            name=b"own",
            function=Function(call),
            sizes=ctypes.cast(sizes, ctypes.POINTER(ctypes.c_uint64)),
            count=len(spans),
            results=results,
        )


def test_overlapping_tensors_go_on_overlapping():
    """A kernel that shifts a vector in place: it reads one view and writes another."""
    memory = aligned_empty((48,))
    memory[...] = np.arange(48)
    seen = []

    def shift(source, destination):
        seen.append(address_of(destination) - address_of(source))
        destination[...] = source + 1

    own = OwnKernel(shift, memory, (0, 32), (16, 32))
    Guard().check(own.kernel, own.arguments)
    assert seen == [64, 64]
    expected = np.arange(48)
    expected[16:] = np.arange(32) + 1
    np.testing.assert_array_equal(memory, expected)
    assert [tensor.data for tensor in own.tensors] == [address_of(memory) + d for d in (0, 64)]


def test_a_kernel_s_own_failure_is_passed_on():
    own = OwnKernel(lambda x: -1, aligned_empty((16,)), (0, 16))
    with pytest.raises(MemoryError, match="kernel own failed"):
        Guard().check(own.kernel, own.arguments)


def toy_module(toy):
    return load(toy.path, threads=2)


def named(toy, inputs):
    return dict(zip((spec.name for spec in toy.header.inputs), inputs, strict=True))
