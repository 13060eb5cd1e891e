"""Lanes after the last channel stay finite for any image, because the next layer reads them."""

from dataclasses import replace

import numpy as np
import pytest
from conv_workloads import conv_workload
from kernel_harness import HOST, run

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import kernel_arguments, random_operands
from neocpu.schedules.vocabulary.workload import EpilogueOp

LANES = HOST.lanes("float32")
CHANNELS = LANES + 3
STEPS = (EpilogueOp("bias_add"), EpilogueOp("relu"))
WORKLOADS = {
    "1x1": conv_workload(1, LANES, 5, 7, CHANNELS, (1, 1), epilogue=STEPS),
    "3x3": conv_workload(1, LANES, 5, 7, CHANNELS, (3, 3), padding=(1,) * 4, epilogue=STEPS),
}


def padded(name: str, kind: str):
    """Return a scheme whose last block is not full; None if the template has none."""
    template, workload = registry.TEMPLATES[name], WORKLOADS[kind]
    space = template.space(workload, HOST) if template.applies(workload, HOST) else ()
    return next((s for s in space if CHANNELS % s.out_layout.block), None)


@pytest.mark.parametrize("pixel", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, k) for n in registry.algorithms().values() for k in WORKLOADS if padded(n, k)],
)
def test_padded_lanes_stay_finite_if_the_image_is_not(name, kind, pixel):
    template, workload, scheme = registry.TEMPLATES[name], WORKLOADS[kind], padded(name, kind)
    operands = random_operands(workload, 1)
    data = operands.data.copy()
    data[:, 1, 2, 3] = pixel
    operands = replace(operands, data=data)
    packed = template.pack_weights(operands.weights, workload, scheme)
    arguments = kernel_arguments(workload, scheme, operands, packed)
    (shape, _) = template.argument_shapes(workload, scheme)[-1]
    got = run(template.lower(workload, scheme, HOST, 1), arguments, shape)
    # The lanes after the last channel in the last block.
    block = scheme.out_layout.block
    assert np.isfinite(got[:, -1, ..., CHANNELS % block :]).all()
    assert not np.isfinite(got[:, -1, ..., : CHANNELS % block]).all()
