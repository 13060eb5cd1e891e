"""Each template of float32 convolutions against the reference, at sizes that fit nothing."""

import pytest
from conv_workloads import conv_workload
from kernel_harness import HOST, run

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import (
    conv2d,
    kernel_arguments,
    random_operands,
    wrong_answer,
)
from neocpu.schedules.vocabulary.workload import EpilogueOp

STEPS = (EpilogueOp("bias_add"), EpilogueOp("relu"))
WORKLOADS = [
    conv_workload(2, 17, 7, 9, 31, (3, 3), padding=(1, 0, 2, 1), epilogue=STEPS),
    conv_workload(1, 32, 9, 7, 48, (1, 1), stride=(2, 2), epilogue=STEPS),
    conv_workload(1, 72, 9, 11, 64, (1, 1), epilogue=STEPS),
    conv_workload(1, 32, 9, 11, 32, (3, 3), padding=(1,) * 4, groups=32, epilogue=STEPS),
    conv_workload(1, 64, 9, 11, 64, (3, 3), padding=(1,) * 4, groups=4, epilogue=STEPS),
]
CASES = [
    (name, workload)
    for name in registry.algorithms().values()
    for workload in WORKLOADS
    if registry.TEMPLATES[name].applies(workload, HOST)
]


@pytest.mark.parametrize(("name", "workload"), CASES, ids=str)
def test_the_best_and_the_last_scheme_compute_it(name, workload):
    template = registry.TEMPLATES[name]
    space = template.space(workload, HOST)
    operands = random_operands(workload, 1)
    for scheme in dict.fromkeys((space[0], space[-1])):
        weights = template.pack_weights(operands.weights, workload, scheme)
        arguments = kernel_arguments(workload, scheme, operands, weights)
        *shapes, (output, _) = template.argument_shapes(workload, scheme)
        assert [(each.shape, str(each.dtype)) for each in arguments] == shapes
        got = run(template.lower(workload, scheme, HOST, 2), arguments, output)
        assert wrong_answer(scheme, got, conv2d(workload, operands)) is None
