"""Machine code of the templates has the expected instructions, and no others."""

import functools
import re

import numpy as np
import pytest
import tvm
from conv_workloads import conv_workload
from kernel_harness import HOST, normal, run, runnable
from tvm import te
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions import conv2d_direct
from neocpu.schedules.convolutions.winograd import conv2d_winograd
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.tir.builder import build_kernel, flat
from neocpu.schedules.tir.codegen import PIPELINE, Lower, each_function, propagate_nan
from neocpu.schedules.vocabulary.frames import Frames
from neocpu.schedules.vocabulary.scheme import DirectScheme, WinogradScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.search.measuring.kernel_calls import compile_kernels

AVX512 = parse_target("llvm -mcpu=skylake-avx512")


def build(workload, scheme, target, pipeline=PIPELINE):
    func = conv2d_direct.lower(workload, scheme, target).with_attr("global_symbol", "main")
    return tvm.tirx.build(tvm.IRModule({"main": func}), target.to_tvm(), pipeline=pipeline)


def test_accumulators_are_no_heap_workspace():
    workload, scheme = (
        conv_workload(1, 32, 14, 14, 32, (1, 1)),
        DirectScheme(16, 32, reg_n=14, unroll_ker=False),
    )
    default = build(workload, scheme, AVX512, "default").inspect_source("ll")
    ours = build(workload, scheme, AVX512).inspect_source("ll")
    assert "TVMBackendAllocWorkspace" in default
    assert "TVMBackendAllocWorkspace" not in ours


def test_accumulators_stay_in_registers():
    """The innermost loop of a tile that fits the registers multiplies and never spills."""
    workload, scheme = (
        conv_workload(1, 64, 14, 14, 32, (1, 1)),
        DirectScheme(16, 32, reg_n=7, unroll_ker=False),
    )
    lines = build(workload, scheme, AVX512).inspect_source("asm").splitlines()
    fmas = [i for i, line in enumerate(lines) if "vfmadd" in line and "zmm" in line]
    assert len(fmas) >= 14
    body = lines[fmas[0] : fmas[13]]
    assert not any("vmovups\t%zmm" in line and "(%rsp" in line for line in body)


def test_loop_nests_keep_the_buffers_that_they_ask_for():
    """They keep them even if data decide the number of rows that a task uses."""
    frames = Frames(16, 3, padding=(1, 1))
    workload = conv_workload(16, 192, 56, 56, 64, (3, 3), padding=(1, 1, 1, 1), frames=frames)
    scheme = WinogradScheme(16, 16, reg_n=6, tile=6, reg_oc=64, strip=2, oc_split=False)
    func = conv2d_winograd.lower(workload, scheme, AVX512, 2).with_attr("global_symbol", "main")
    target = AVX512.to_tvm()
    bound = tvm.tirx.transform.BindTarget(target.with_host(target))(tvm.IRModule({"main": func}))
    sizes = re.findall(r"T\.alloc_buffer\(\((\d+),\)(, \"float32x16\")?", Lower()(bound).script())
    asked = [24 * (64 * 6 + 1) * 16, 64 * (2 * 6 * 4 + 1) * 16]
    assert [int(size) * (16 if vectors else 1) for size, vectors in sizes] == asked


def test_same_result_as_the_default_pipeline():
    workload = conv_workload(1, 19, 9, 9, 37, (3, 3), padding=(1, 1, 1, 1))
    scheme = DirectScheme(16, 16, reg_n=5, unroll_ker=False, reg_oh=2)
    rng = np.random.default_rng(0)
    shapes = conv2d_direct.argument_shapes(workload, scheme)
    inputs = [rng.standard_normal(shape).astype(dtype) for shape, dtype in shapes]
    results = []
    for pipeline in ("default", PIPELINE):
        arguments = [tvm.runtime.tensor(array) for array in inputs]
        func = conv2d_direct.lower(workload, scheme, HOST)
        (kernel,) = compile_kernels({"main": func}, HOST, 1, pipeline)
        runnable(kernel)(*arguments)
        results.append(arguments[-1].numpy())
    np.testing.assert_array_equal(*results)


def test_a_temporary_is_not_written_over_while_another_name_reads_it():
    """TVM would compute such a reversal in place."""
    size = 64

    def body(data, output):
        first, second = (T.alloc_buffer((size,), "float32", layout=None) for _ in range(2))
        read = flat(first)
        with T.serial(size) as i:
            T.buffer_store(first, data[i] * 2.0, [i])
        with T.serial(size) as i:
            T.buffer_store(second, read[size - 1 - i], [i])
        with T.serial(size) as i:
            T.buffer_store(output, second[i] + 1.0, [i])

    data = normal((size,))
    func = build_kernel([(name, (size,), "float32") for name in ("data", "output")], body)
    np.testing.assert_array_equal(run(func, [data], (size,)), 2 * data[::-1] + 1)


@pytest.mark.parametrize(("channels", "prefetches"), [(2048, True), (16, False)])
def test_large_weights_of_small_images_are_prefetched(channels, prefetches):
    # Above the share of L2 under which threads take rows, and so reuse the weights.
    workload = conv_workload(1, channels, 7, 7, 512, (1, 1))
    assembly = build(
        workload, DirectScheme(16, 32, reg_n=7, unroll_ker=False), AVX512
    ).inspect_source("asm")
    assert ("prefetch" in assembly) is prefetches


def test_nested_maxima_propagate_nan_and_are_written_once():
    """Each maximum reads one copy of the previous one; otherwise code would triple each time."""
    count, shape = 8, (16, 17)
    inputs = [te.placeholder(shape, "float32", name=f"x{i}") for i in range(count)]

    def largest(*index):
        doubled = [data(*index) * 2.0 for data in inputs]
        return functools.reduce(te.max, doubled)

    output = te.compute(shape, largest, name="output")
    func = schedule_function(te.create_prim_func([*inputs, output]), HOST)
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    rewritten = each_function(propagate_nan)(module)["main"].script()
    assert len(rewritten) < 10 * len(module["main"].script())
    arrays = np.random.default_rng(0).standard_normal((count, *shape)).astype(np.float32)
    arrays[np.arange(count), np.arange(count), 3] = np.nan
    np.testing.assert_array_equal(run(func, list(arrays), shape), 2 * arrays.max(axis=0))
