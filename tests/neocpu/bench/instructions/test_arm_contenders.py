"""Every engine is given the same convolution: run here, on this host, all give numpy's result."""

import needs
import pytest
from conv_workloads import conv_workload

from neocpu.bench.engines.agreement import relative_error
from neocpu.bench.instructions.arm_contenders import CONTENDERS
from neocpu.bench.instructions.arm_guest import LOADERS
from neocpu.bench.instructions.arm_kernels import Kernel
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import conv2d, random_operands
from neocpu.schedules.vocabulary.target import host_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

BIAS, RELU = EpilogueOp("bias_add"), EpilogueOp("relu")
WORKLOADS = [
    conv_workload(
        1, 3, 13, 11, 8, (5, 3), stride=(2, 1), padding=(2, 1, 1, 0), epilogue=(BIAS, RELU)
    ),
    conv_workload(
        1,
        8,
        9,
        7,
        8,
        (3, 3),
        padding=(1, 1, 1, 1),
        groups=8,
        epilogue=(BIAS, EpilogueOp("clip", (0.0, 1.5))),
    ),
    conv_workload(1, 12, 6, 5, 20, (1, 1), epilogue=(RELU,)),
    conv_workload(1, 16, 10, 10, 16, (3, 3), padding=(1, 1, 1, 1), dilation=(1, 1)),
]


@pytest.mark.parametrize("engine", CONTENDERS)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_every_engine_computes_the_same(workload, engine, tmp_path):
    needs.skip(needs.engine(engine))
    target = host_target()
    kernel = Kernel(workload, registry.schemes(workload, target)[0])
    operands = random_operands(workload, seed=1)
    prepared = CONTENDERS[engine](kernel, operands, target, tmp_path)
    task = {"path": str(prepared.path), "packed": prepared.packed}
    loaded = LOADERS[engine](task, list(prepared.arguments))
    output = prepared.logical(loaded.to_numpy(loaded.run()))
    assert relative_error([output], [conv2d(workload, operands)]) < 1e-5
