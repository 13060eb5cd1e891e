"""The kernels that measure the machine do all their work: nothing is optimised away."""

import re

import numpy as np
import pytest
import tvm

from neocpu.bench.limits.kernel_runner import KernelRunner
from neocpu.bench.limits.peak import (
    FMA_STEPS,
    fma_flops,
    fma_kernel,
    fma_peak,
    measure_peak,
    read_kernel,
    read_peak,
)
from neocpu.foundation.errors import TargetError
from neocpu.foundation.machine.machine_info import caches
from neocpu.schedules.vocabulary.target_parsing import host_target, parse_target

HOST = host_target()
# Instruction, and how many of them one round over the accumulators takes.
TARGETS = {
    "llvm -mcpu=haswell": (r"vfmadd\w+ps\s.*%ymm", 12),
    "llvm -mcpu=skylake-avx512": (r"vfmadd\w+ps\s.*%zmm", 24),
    "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72": (r"fmla\s+v\d+\.4s", 24),
}


def _assembly(kernel, target):
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    return str(tvm.tirx.build(module, target.to_tvm()).inspect_source("asm"))


def _innermost_loop(assembly, pattern):
    """Lines from the label before the first match to the jump back to it."""
    lines = assembly.splitlines()
    first = next(i for i, line in enumerate(lines) if re.search(pattern, line))
    start = max(i for i in range(first) if re.match(r"\.L\w+:", lines[i]))
    label = lines[start].split(":")[0]
    jump = re.compile(rf"\s(j\w+|b\.\w+|cbnz\s.*)\s+{re.escape(label)}$")
    end = next(i for i in range(first, len(lines)) if jump.search(lines[i]))
    return lines[start + 1 : end + 1]


@pytest.mark.parametrize("name", TARGETS)
def test_the_loop_is_all_multiply_adds(name):
    pattern, chains = TARGETS[name]
    target = parse_target(name)
    loop = _innermost_loop(_assembly(fma_kernel(target, 4, 4096), target), pattern)
    count = sum(bool(re.search(pattern, line)) for line in loop)
    assert count > 0
    assert count % chains == 0
    # Counting and jumping back; no loads, stores or moves.
    others = [line for line in loop if not re.search(pattern, line)]
    assert len(others) <= 3, others


@pytest.mark.parametrize("name", TARGETS)
def test_the_read_kernel_compiles(name):
    target = parse_target(name)
    assert "add" in _assembly(read_kernel(target, 4, 4096), target)


@pytest.mark.parametrize("threads", [1, 2])
def test_fma_kernel_does_every_step(threads):
    steps, lanes = 5, HOST.lanes("float32")
    chains = fma_flops(HOST, 1, 1) // (2 * lanes)
    rng = np.random.default_rng(0)
    seeds = rng.uniform(0.5, 1, (chains + 1, lanes)).astype(np.float32)
    output = np.zeros((threads, chains * lanes), np.float32)
    with KernelRunner(HOST, threads) as runner:
        kernel = runner.build(fma_kernel(HOST, threads, steps), [seeds.ravel(), output])
        assert kernel.sample(1e-5) > 0
        result = kernel.arrays()[1]
    expected = seeds[1:].astype(np.float64)
    for _ in range(steps):
        for c in range(chains):
            expected[c] += seeds[0] * expected[(c + 1) % chains]
    for row in result:
        np.testing.assert_allclose(row.reshape(chains, lanes), expected, rtol=1e-4)


def test_peak_kernel_neither_overflows_nor_underflows():
    with KernelRunner(HOST, 1) as runner:
        kernel = fma_peak(runner)
        kernel.sample(0)
        _, output = kernel.arrays()
    assert fma_flops(HOST, 1) == fma_flops(HOST, 1, FMA_STEPS)
    assert np.all((output >= 1) & (output < 2.1))


def test_read_kernel_reads_every_element():
    with KernelRunner(HOST, 2) as runner:
        kernel = read_peak(runner, 1 << 20)
        assert kernel.sample(1e-5) > 0
        data, output = kernel.arrays()
    np.testing.assert_array_equal(output, data.sum(axis=1))


def test_measured_peak_is_positive():
    peak = measure_peak(HOST, 1, samples=1, read_bytes=1 << 20)
    assert peak.threads == 1
    assert peak.gflops > 0
    assert peak.read_gbytes > 0
    assert peak.cache_gbytes > 0 or not caches()


def test_a_foreign_target_cannot_be_timed():
    with pytest.raises(TargetError, match="cannot time kernels for cortex-a72 here"):
        KernelRunner(parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"), 1)
