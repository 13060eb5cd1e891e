"""Networks that ONNX Runtime quantised, compiled in integers and in float32."""

from __future__ import annotations

import needs
import numpy as np
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.plan.text.plan_text import rounding_fields
from tests.neocpu.quantised_models import (
    image,
    last_step,
    network,
    network_in_groups,
    quantised,
    run_onnxruntime,
    sliced_network,
    split_network,
)

AVX2 = "llvm -mcpu=haswell"
"""A fixed target, because plans depend on the CPU; every x86-64 machine of tests can run it."""

FORMS = {
    "u8": {},
    "u8 per channel": {"per_channel": True},
    "s8 per channel": {"activations": QuantType.QInt8, "per_channel": True},
    "reduced range": {"per_channel": True, "reduce_range": True},
    # In this form ONNX Runtime's sums saturate where the CPU has no VNNI, unless weights are small.
    "operators": {"form": QuantFormat.QOperator, "reduce_range": True},
}


def compiled_within_a_step(model, precision, target="host"):
    """Compile a model, check that it agrees with ONNX Runtime within a step; return the plan."""
    how = {"precision": precision, "small": precision == "int8", "target": target}
    with neocpu.compile(model, threads=2, **how) as compiled:
        module = compiled.module()
        for seed in range(10, 14):
            x = image(seed)
            steps = np.abs(module(x) - run_onnxruntime(model, x)) / last_step(model)
            assert steps.max() <= 1.01
        return compiled.plan


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("precision", ["int8", "fp32", "auto"])
@needs.one_in(2)
def test_outputs_are_onnx_runtimes_within_a_step(name, precision):
    plan = compiled_within_a_step(quantised(network(), **FORMS[name]), precision)
    convolutions = [op for op in plan.ops if op.kind == "conv2d"]
    in_integers = sum(op.precision == "int8" for op in convolutions)
    if precision != "auto":
        assert in_integers == (5 if precision == "int8" else 0), "all, or none"


@needs.instruction_set("avx2")
@pytest.mark.parametrize("name", ["u8", "s8 per channel"])
@pytest.mark.parametrize("precision", ["int8", "fp32", "auto"])
@needs.one_in(2)
def test_convolutions_in_groups_are_onnx_runtimes_within_a_step(name, precision):
    plan = compiled_within_a_step(quantised(network_in_groups(), **FORMS[name]), precision, AVX2)
    convolutions = [op for op in plan.ops if op.kind == "conv2d"]
    in_groups = [op for op in convolutions if " g" in op.workload]
    read = [op.name for op in in_groups if "uint8" in op.in_layout]
    assert len(in_groups) == 4
    pools = [op for op in plan.ops if "pool" in op.kind]
    read += [op.name for op in pools if "uint8" in op.in_layout]
    assert (len(read) >= 4) if precision == "int8" else (precision == "auto" or not read)


def test_neighbours_agree_on_integers():
    """Only tensors whose grids differ are quantised or dequantised by separate kernels."""
    model = quantised(network(), per_channel=True)
    with neocpu.compile(model, precision="int8", small=True, verify=False) as compiled:
        plan = compiled.plan
    alone = [op for op in plan.ops if op.kind == "quantise" and "1x1" not in op.workload]
    assert len(alone) <= 2, "the image, and what the concatenation has on another grid"
    stored = [op.out_layout for op in plan.ops if op.kind in ("conv2d", "pool")]
    assert sum("uint8" in each for each in stored) >= 4
    ((name, text),) = rounding_fields(plan)
    assert name == "kernels of their own"
    assert "1 after an input" in text
    changes = [t for t in plan.transforms if ("uint8" in t.source) != ("uint8" in t.destination)]
    assert len(changes) <= 2


@needs.instruction_set("avx2")
@pytest.mark.parametrize("build", [sliced_network, split_network])
def test_slices_and_their_concatenation_copy_integers(build):
    model = quantised(build(), per_channel=True)
    with neocpu.compile(model, precision="int8", small=True, target=AVX2, verify=False) as compiled:
        x = image(11)
        steps = np.abs(compiled.module()(x) - run_onnxruntime(model, x)) / last_step(model)
        ops = compiled.plan.ops
    assert steps.max() <= 1.01
    assert [op.kind for op in ops] == ["quantise", "conv2d", "gather", "conv2d"]
    assert ["uint8" in op.out_layout for op in ops if op.kind == "gather"] == [True]


def test_weights_are_stored_as_integers():
    model = quantised(network(), per_channel=True)
    sizes = {}
    for precision in ("int8", "fp32"):
        small = precision == "int8"
        with neocpu.compile(model, precision=precision, small=small, verify=False) as compiled:
            sizes[precision] = compiled.plan.weights.packed_bytes
    assert sizes["int8"] < 0.4 * sizes["fp32"]


def test_an_unknown_precision_is_named():
    with pytest.raises(UsageError, match="unknown precision 'int9'; known: fp32, int8, bf16, auto"):
        neocpu.compile(network(), precision="int9")
