"""Kernels compile for CPUs that the tests do not run on, and fork there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from conv_reference import EPILOGUES
from conv_workloads import join, pool_workload
from kernel_harness import FOREIGN, compile_for, float32

from neocpu.schedules import registry
from neocpu.schedules.operators.concat import lower_concat, lower_gather
from neocpu.schedules.operators.dense import DenseWorkload, lower_dense
from neocpu.schedules.operators.layout_transform import lower_transform
from neocpu.schedules.operators.pictures.prepare_picture import lower_prepare_picture
from neocpu.schedules.operators.pixel_shuffle import lower_shuffle
from neocpu.schedules.operators.pool import lower_global_pool, lower_pool
from neocpu.schedules.operators.resize import ResizeWorkload, lower_resize
from neocpu.schedules.operators.statistics.channel_norm import (
    ChannelNormWorkload,
    lower_channel_norm,
)
from neocpu.schedules.operators.statistics.gate import (
    ChannelWindowWorkload,
    GateWorkload,
    lower_channel_window,
    lower_gate,
)
from neocpu.schedules.operators.statistics.group_norm import GroupNormWorkload, lower_group_norm
from neocpu.schedules.products.attention import lower_attention
from neocpu.schedules.products.mixed_attention import lower_mixed_attention
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.scheme import JoinScheme
from neocpu.schedules.vocabulary.workload import EpilogueOp
from tests.schedules.operators.pictures.test_prepare_picture import CASES, prepared
from tests.schedules.operators.test_pixel_shuffle import shuffle
from tests.schedules.products.test_attention import contiguous

MAP = (1, 64, 28, 28)
HALVES = Format(DataLayout(8), "bfloat16")
BIAS, RELU, SIGMOID = EpilogueOp("bias_add"), EpilogueOp("relu"), EpilogueOp("sigmoid")
STRIDED = {"stride": (2, 2), "padding": (1, 1, 1, 1)}
MEAN = pool_workload("avg", MAP, (3, 3), **STRIDED)
MAXIMUM = pool_workload("max", (1, 16, 9, 11), (3, 3), stride=(2, 2), dtype="bfloat16")
RESIZE = ResizeWorkload((1, 32, 28, 28), (56, 56), "linear", "half_pixel")
WINDOW = ChannelWindowWorkload((1, 480, 14, 14), 5, 2, (SIGMOID,))
GATE = GateWorkload((1, 480, 14, 14), 120, 480, (BIAS, RELU), (BIAS, SIGMOID))
MIXED = replace(contiguous((1, 4), 49, 49, 24), mixed_before=True, mixed_after=True)


def joined(operator: str, target: Any) -> Any:
    return registry.lower(join(operator, (64, 64), (1, 28, 28)), JoinScheme(), target, 2)


#: The number of parallel loops of each kernel, and a function that returns it for a CPU.
KERNELS: Mapping[str, tuple[int, Callable[[Any], Any]]] = {
    "attention": (1, lambda cpu: lower_attention(contiguous((3,), 197, 197, 64), cpu, 2)),
    "concat": (1, lambda cpu: lower_concat([MAP, (1, 33, 28, 28)], 1, cpu, float32(8))),
    "concat of bfloat16": (0, lambda cpu: lower_concat([(1, 16, 9, 9)] * 2, 1, cpu, HALVES)),
    "dense": (
        1,
        lambda cpu: lower_dense(DenseWorkload(1, 1000, 512, epilogue=EPILOGUES[0]), cpu, 2),
    ),
    "gate": (3, lambda cpu: lower_gate(GATE, float32(8), cpu)),
    "gather": (
        1,
        lambda cpu: lower_gather([(1, 58, 28, 28)] * 2, [(0, 29), (29, 58)], cpu, float32(8)),
    ),
    "global pool": (1, lambda cpu: lower_global_pool("max", MAP, float32(8), cpu)),
    "global pool of NCHW": (1, lambda cpu: lower_global_pool("max", MAP, float32(1), cpu)),
    "group norm": (
        2,
        lambda cpu: lower_group_norm(GroupNormWorkload(MAP, 1, 1e-5), float32(8), cpu, 4),
    ),
    "join of sums": (1, lambda cpu: joined("elementwise", cpu)),
    "join of channels": (1, lambda cpu: joined("concat", cpu)),
    "layer norm": (
        1,
        lambda cpu: lower_channel_norm(ChannelNormWorkload(MAP, 1e-6), float32(8), cpu),
    ),
    "mixed attention": (1, lambda cpu: lower_mixed_attention(MIXED, cpu, 4)),
    "pack": (1, lambda cpu: lower_transform((1, 65, 30, 30), float32(1), float32(8), cpu)),
    "picture": (0, lambda cpu: lower_prepare_picture(prepared(CASES["letterboxed"])[0])),
    "pool": (1, lambda cpu: lower_pool(MEAN, DataLayout(8), cpu)),
    "pool of NCHW": (1, lambda cpu: lower_pool(MEAN, DataLayout(1), cpu)),
    "pool of bfloat16": (0, lambda cpu: lower_pool(MAXIMUM, HALVES.layout, cpu)),
    "regroup": (1, lambda cpu: lower_transform((1, 65, 30, 30), float32(4), float32(8), cpu)),
    "resize": (1, lambda cpu: lower_resize(RESIZE, float32(8), cpu)),
    "shuffle": (1, lambda cpu: lower_shuffle(shuffle(MAP, 2, 2), float32(8), cpu)),
    "shuffle of NCHW": (1, lambda cpu: lower_shuffle(shuffle(MAP, 2, 2), float32(1), cpu)),
    "window": (1, lambda cpu: lower_channel_window(WINDOW, float32(8), cpu)),
}


@pytest.mark.parametrize("target", FOREIGN, ids=lambda target: target.mcpu)
@pytest.mark.parametrize("name", KERNELS)
def test_compiles_for_other_cpus(name, target):
    forks, lower = KERNELS[name]
    func = lower(target)
    assert func.script().count("T.parallel(") == forks
    code = compile_for(func, target)
    if name in ("attention", "dense"):
        assert ("fmla" if target.machine == "aarch64" else "vfmadd") in code
