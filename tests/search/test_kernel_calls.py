"""Single kernels on the threads that run artifacts agree with those on TVM's threads."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from python_kernels import kernel_of
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.errors import NeoCPUError
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import kernel_arguments, random_operands
from neocpu.schedules.tir.builder import build_kernel
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target_parsing import host_target
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.search.measuring.buffers import aligned_copy
from neocpu.search.measuring.kernel_calls import Argument, KernelPool, _core, compile_kernels
from tests import needs
from tests.conv_workloads import conv_workload

TARGET = host_target()
ONE = (1, 1, 1, 1)
INTEGERS = Numerics(data="uint8", weights="int8", sum="int32", output="int32")
WORKLOADS = [
    conv_workload(
        2, 13, 9, 10, 21, (3, 3), padding=(1, 0, 2, 1),
        epilogue=(EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu")),
    ),
    conv_workload(1, 48, 14, 14, 64, (1, 1)),
    conv_workload(1, 32, 15, 9, 32, (3, 3), padding=ONE, groups=32),
    conv_workload(1, 32, 15, 9, 32, (3, 3), stride=(2, 2), padding=ONE, groups=4),
    conv_workload(1, 32, 8, 8, 32, (3, 3), padding=ONE, numerics=INTEGERS),
]  # fmt: skip
# TVM's own threads compute in a process that has not replaced them by the runtime's.
ON_TVM = """
import sys, ml_dtypes, numpy as np, tvm
from pathlib import Path
from neocpu.foundation.instruction_sets import tiles_permitted
tiles_permitted()  # asks for them, where the CPU has any
module = tvm.runtime.load_module(sys.argv[1])
for arguments in Path(sys.argv[2]).iterdir():
    files = sorted(arguments.iterdir())
    arrays = map(np.load, files)  # which does not know the bits of bfloat16
    arrays = [a.view(ml_dtypes.bfloat16) if a.dtype.kind == "V" else a for a in arrays]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    module[arguments.name](*tensors)
    np.save(files[-1], tensors[-1].numpy())
"""
SIZES = 1 << 16


def on_tvm(functions, arguments, folder: Path):
    """Return the results of functions on TVM's threads, in one separate process."""
    module = tvm.IRModule({n: f.with_attr("global_symbol", n) for n, f in functions.items()})
    library, called = folder / "all.so", folder / "arguments"
    tvm.tirx.build(module, TARGET.to_tvm(), pipeline=PIPELINE).export_library(str(library))
    for name, arrays in arguments.items():
        (called / name).mkdir(parents=True)
        for number, array in enumerate(arrays):
            np.save(called / name / f"{number}.npy", array)
    subprocess.run([sys.executable, "-c", ON_TVM, library, called], check=True)
    return {name: np.load(max((called / name).iterdir())) for name in functions}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_kernels_compute_the_same_as_on_tvms_threads(workload, threads, tmp_path: Path):
    firsts = {s.template: s for s in reversed(registry.schemes(workload, TARGET))}
    operands = random_operands(workload, 1)
    functions, arguments, found = {}, {}, {}
    for name, scheme in firsts.items():
        functions[name] = function = registry.lower(workload, scheme, TARGET, threads)
        packed = registry.pack_weights(operands.weights, workload, scheme)
        shape, dtype = registry.argument_shapes(workload, scheme)[-1]
        output = np.full(shape, 7, dtype)
        arrays = [*kernel_arguments(workload, scheme, operands, packed), output]
        arguments[name] = arrays
        copies = [aligned_copy(np.asarray(array)) for array in arrays]
        (kernel,) = compile_kernels({"main": function}, TARGET, threads)
        with KernelPool(threads) as pool:
            assert pool.call(kernel, [Argument.of(copy) for copy in copies]) > 0
        found[name] = copies[-1]
    for name, expected in on_tvm(functions, arguments, tmp_path).items():
        np.testing.assert_array_equal(found[name], expected)


def doubling(extent: int, workspace: bool = False):
    """A kernel whose parallel loop doubles rows, with a workspace for each task if asked for."""

    def body(data, output):
        with T.parallel(extent) as row:
            if not workspace:
                with T.serial(SIZES // extent) as i:
                    T.buffer_store(output, data[row, i] * 2, [row, i])
            else:
                held = T.alloc_buffer((SIZES // extent,), "float32", layout=None)
                with T.serial(SIZES // extent) as i:
                    T.buffer_store(held, data[row, i] * 2, [i])
                with T.serial(SIZES // extent) as i:
                    T.buffer_store(output, held[i], [row, i])

    shape = (extent, SIZES // extent)
    return build_kernel([("data", shape, "float32"), ("output", shape, "float32")], body)


@pytest.mark.parametrize("workspace", [False, True])
def test_a_kernel_with_workspaces_runs_on_a_pool_and_outside_one(workspace):
    (kernel,) = compile_kernels({"main": doubling(16, workspace)}, TARGET, 2)
    rng = np.random.default_rng(0)
    data = aligned_copy(rng.standard_normal((16, SIZES // 16)).astype(np.float32))
    output = aligned_copy(np.zeros_like(data))
    with KernelPool(2) as pool:
        pool.call(kernel, [Argument.of(data), Argument.of(output)])
    np.testing.assert_array_equal(output, 2 * data)
    tensor = tvm.runtime.tensor(output)
    kernel.owner(tvm.runtime.tensor(-data), tensor)
    np.testing.assert_array_equal(tensor.numpy(), -2 * data)


ON_THE_RUNTIME = """
import sys
from collections import Counter
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_kernel_calls import *

def threads():
    return Counter(each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm"))

def used():
    found = Path("/proc/self/task").glob("*")
    return sum(
        int((each / "schedstat").read_text().split()[0])
        for each in found if (each / "comm").read_text().strip() == "neocpu"
    )

(kernel,) = compile_kernels({"main": doubling(16)}, TARGET, 2)
data = aligned_copy(np.ones((16, SIZES // 16), np.float32))
before = threads()
with KernelPool(2) as pool:
    arguments = [Argument.of(data), Argument.of(aligned_copy(data))]
    pool.call(kernel, arguments)
    idle = used()
    pool.call(kernel, arguments, 2000)
    assert used() > idle + 1_000_000, "the runtime's thread has done nothing"
    print(*(threads() - before).elements())
print(*(threads() - before).elements())
"""


@needs.cpus(2)
def test_the_threads_are_the_runtimes_and_end_with_the_pool():
    command = [sys.executable, "-c", ON_THE_RUNTIME, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "neocpu\n\n")


@needs.cpus(2)
def test_loops_are_cut_as_artifacts_cut_them():
    (kernel,) = compile_kernels({"main": doubling(16)}, TARGET, 2)
    assert kernel.tasks == (16,)
    done = []

    @ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int32 * 4), ctypes.c_void_p
    )
    def loop(task, parallel, data):
        done.append((task, parallel.contents[2]))
        return 0

    launch = ctypes.c_void_p()
    _core().neocpu_lend_backend(ctypes.byref(launch), None, None)
    launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(
        launch.value
    )
    counting = kernel_of(lambda _: launch(loop, None, 0), tasks=(11,))
    with KernelPool(2) as pool:
        pool.call(counting, [])
    # TVM's threads would have one task each.
    assert sorted(done) == [(task, 11) for task in range(11)]


def test_calls_take_the_places_of_arguments_in_turn():
    (kernel,) = compile_kernels({"main": doubling(1)}, TARGET, 1)
    data = aligned_copy(np.arange(3 * SIZES, dtype=np.float32).reshape(3, SIZES))
    output = aligned_copy(np.zeros((4, SIZES), np.float32))
    arguments = [
        Argument(
            address=a.ctypes.data, shape=(1, SIZES), dtype="float32", stride=4 * SIZES, places=n
        )
        for a, n in ((data, 3), (output, 4))
    ]
    with KernelPool(1) as pool:
        pool.call(kernel, arguments, calls=3, first=2)
    np.testing.assert_array_equal(
        output, 2 * np.stack([data[1], np.zeros(SIZES), data[2], data[0]])
    )


def test_more_threads_than_cpus_are_cut_to_these():
    KernelPool(1000).close()


def test_a_kernel_that_fails():
    calls = []
    with KernelPool(1) as pool, pytest.raises(NeoCPUError, match="the kernel failed"):
        pool.call(kernel_of(lambda addresses: calls.append(addresses) or -1), [], calls=3)
    assert calls == [()]
