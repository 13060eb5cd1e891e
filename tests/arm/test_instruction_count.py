"""Counting a convolution from end to end: compiled for ARM, emulated, its inner loop modelled."""

import needs
from conv_workloads import conv_workload
from sysroot import SYSROOT

from neocpu.schedules import registry
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp
from tests.experiments.instructions.arm_kernels import Kernel
from tests.experiments.instructions.arm_system import CPU, open_system
from tests.experiments.instructions.convolution_counter import Counter
from tests.experiments.instructions.instruction_count import TOOLS

pytestmark = needs.programs(*TOOLS)


def test_a_kernel_is_counted_and_its_inner_loop_modelled(tmp_path):
    target = parse_target(f"llvm -mtriple=aarch64-linux-gnu -mcpu={CPU}")
    workload = conv_workload(1, 64, 14, 14, 64, (1, 1), epilogue=(EpilogueOp("bias_add"),))
    kernel = Kernel(workload, registry.schemes(workload, target)[0])
    root = tmp_path / "root"
    root.mkdir()
    counter = Counter(open_system(SYSROOT, root), target, tmp_path)
    found = counter.count(kernel)
    # Every multiply-add is a whole vector's; the first of each sum may be a multiplication.
    vectors = kernel.macs / 4
    assert 0.95 * vectors <= found.multiply_adds <= 1.2 * vectors
    assert found.multiply_adds < found.instructions < 3 * found.multiply_adds
    assert found.covered > 0.9
    assert 0.85 < found.bound_share <= 1.0
