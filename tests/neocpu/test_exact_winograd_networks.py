"""Integer networks by Winograd's algorithm equal direct convolution bit for bit."""

import needs
import numpy as np
import pytest
from onnxruntime.quantization import QuantType

import neocpu
from neocpu.plan.operators import ExactSums
from neocpu.plan.text.plan_text import proof_fields
from neocpu.planning import weight_limit
from tests.neocpu.quantised_models import image, quantised, wide_network

AVX2 = "llvm -mcpu=haswell"


def outputs(model, algorithms):
    """Return a model's outputs for two batches, and its plan."""
    how = {"precision": "int8", "small": True, "target": AVX2}
    with neocpu.compile(model, algorithms=algorithms, threads=2, **how) as compiled:
        module = compiled.module()
        return [np.array(module(image(seed))) for seed in (10, 11)], compiled.plan


@needs.instruction_set("avx2")
@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8])
def test_exact_winograd_equals_direct_convolution_bit_for_bit(activations):
    """The block has a residual, and zero points as padding."""
    model = quantised(wide_network(), activations=activations, per_channel=True)
    direct, _ = outputs(model, ["dot", "direct"])
    exact, plan = outputs(model, ["dot", "winograd"])
    made = [op for op in plan.ops if op.kind == "conv2d"]
    by_winograd = [op for op in made if op.scheme.template == "conv2d_winograd"]
    assert len(by_winograd) == 2
    assert all(map(np.array_equal, direct, exact))
    bound = ExactSums(largest_sum=255 * 128 * 9 * 32, limit=1 << 29)
    assert [op.proof for op in made] == [None, bound, bound]
    ((name, text),) = proof_fields(plan)
    assert name == "exact"
    assert text.startswith("2 convolutions by Winograd in integers: no weights make sums above 9,4")


def test_plans_without_exact_winograd_have_no_proof():
    with neocpu.compile(
        quantised(wide_network()), precision="int8", target=AVX2, algorithms=["dot"], verify=False
    ) as compiled:
        assert proof_fields(compiled.plan) == []


@needs.instruction_set("avx2")
@pytest.mark.parametrize("how", ["asked for", "of its own accord"])
def test_weights_are_transformed_on_the_fly_where_they_are_too_many(how, monkeypatch):
    model = quantised(wide_network(), per_channel=True)
    options = {"precision": "int8", "target": AVX2, "algorithms": ["winograd"], "small": True}
    plans, outputs = [], []
    for limited in (False, True):
        own = limited and how == "of its own accord"
        monkeypatch.setattr(weight_limit, "MOST_OF_FLOAT32", 0.25 if own else 10.0)
        limit = None
        if limited and not own:
            limit = plans[0].weights.packed_bytes * 2 // 3
        with neocpu.compile(model, **options, max_weights=limit, verify=False) as compiled:
            plans.append(compiled.plan)
            outputs.append(compiled.module()(image(1)))
    kept, made = (str([op.scheme for op in plan.ops]) for plan in plans)
    assert "on_the_fly" not in kept
    assert "on_the_fly" in made
    sizes = [plan.weights.packed_bytes for plan in plans]
    assert sizes[1] <= 2 / 3 * sizes[0]
    assert np.array_equal(*outputs)
