"""The table of operators agrees with ONNX's evaluator: operators commute with permutations."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from neocpu.ir.row_analysis.independence import (
    DIFFERENT_AXES,
    PARAMETERS,
    DependentRowsError,
    carry,
)
from neocpu.ir.row_analysis.onnx_call import OnnxCall
from neocpu.ir.row_analysis.table import FAMILIES, ONNX_RULES, RELAX_RULES

OPSET = 23


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A node, and the number of ways in which its axes run alongside each other."""

    inputs: list[object]
    ways: int
    outputs: int = 1
    attributes: dict[str, object] = field(default_factory=dict)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


LAYER = {"hidden_size": 6}
SAMPLES = {
    "Add": [Sample(inputs=[(2, 3, 4), (3, 4)], ways=3), Sample(inputs=[(2, 1, 4), (3, 1)], ways=3)],
    "Relu": [Sample(inputs=[(2, 3)], ways=2)],
    "Where": [Sample(inputs=[np.array([[True], [False]]), (2, 3), (3,)], ways=2)],
    "Expand": [Sample(inputs=[(3, 1), ints(2, 3, 4)], ways=3)],
    "Conv": [Sample(inputs=[(3, 4, 6, 6), (5, 4, 3, 3), (5,)], ways=1)],
    "MaxPool": [Sample(inputs=[(3, 4, 6, 6)], attributes={"kernel_shape": [2, 2]}, ways=1)],
    "GridSample": [Sample(inputs=[(3, 2, 4, 4), (3, 5, 5, 2)], ways=1)],
    "Softmax": [
        Sample(inputs=[(2, 3, 4)], ways=2),
        Sample(inputs=[(2, 3, 4)], attributes={"axis": 1}, ways=2),
    ],
    "TopK": [Sample(inputs=[(3, 4), ints(2)], outputs=2, ways=1)],
    "Split": [Sample(inputs=[(4, 3)], attributes={"num_outputs": 2}, outputs=2, ways=1)],
    "CumSum": [Sample(inputs=[(2, 3), np.array(1)], ways=1)],
    "LayerNormalization": [
        Sample(inputs=[(2, 3, 4), (3, 4)], attributes={"axis": 1}, ways=1),
        Sample(inputs=[(2, 3, 4), (4,)], ways=2),
    ],
    "RMSNormalization": [Sample(inputs=[(2, 3, 4), (4,)], ways=2)],
    "Trilu": [Sample(inputs=[(2, 3, 4)], ways=1)],
    "QuantizeLinear": [
        Sample(inputs=[(2, 3), np.float32(0.1), np.uint8(3)], ways=2),
        Sample(inputs=[(2, 3), np.float32([0.1, 0.2, 0.3]), np.zeros(3, np.uint8)], ways=1),
    ],
    "ReduceMean": [
        Sample(inputs=[(2, 3, 4), ints(1)], ways=2),
        Sample(inputs=[(2, 3, 4), ints(-2)], attributes={"keepdims": 0}, ways=2),
        Sample(inputs=[(2, 3, 4)], ways=0),
    ],
    "ArgMax": [Sample(inputs=[(2, 3, 4)], attributes={"axis": 1, "keepdims": 0}, ways=2)],
    "MatMul": [
        Sample(inputs=[(2, 3, 4), (2, 4, 5)], ways=3),
        Sample(inputs=[(2, 3, 4), (4, 5)], ways=3),
        Sample(inputs=[(3, 4), (2, 4, 5)], ways=3),
        Sample(inputs=[(4,), (2, 4, 5)], ways=2),
        Sample(inputs=[(2, 3, 4), (4,)], ways=2),
    ],
    "Gemm": [
        Sample(inputs=[(3, 4), (4, 5), (3, 5)], ways=2),
        Sample(inputs=[(4, 3), (5, 4), (5,)], attributes={"transA": 1, "transB": 1}, ways=2),
    ],
    "Concat": [Sample(inputs=[(2, 3), (2, 4)], attributes={"axis": 1}, ways=1)],
    "Slice": [Sample(inputs=[(2, 3, 4), ints(1), ints(3), ints(2)], ways=2)],
    "Pad": [Sample(inputs=[(2, 3), ints(0, 1, 0, 0)], ways=1)],
    "Tile": [Sample(inputs=[(2, 3), ints(1, 2)], ways=1)],
    "Gather": [
        Sample(inputs=[(2, 3, 4), ints(0, 2)], attributes={"axis": 1}, ways=3),
        Sample(inputs=[(2, 3, 4), np.array(1)], attributes={"axis": 1}, ways=2),
        Sample(inputs=[(5, 4), np.array([[0, 2], [4, 1]])], ways=3),
    ],
    "Transpose": [
        Sample(inputs=[(2, 3, 4)], attributes={"perm": [2, 0, 1]}, ways=3),
        Sample(inputs=[(2, 3, 4)], ways=3),
    ],
    "Squeeze": [Sample(inputs=[(1, 3, 1, 2), ints(0, -2)], ways=2)],
    "Unsqueeze": [Sample(inputs=[(3, 2), ints(0, -1)], ways=2)],
    "OneHot": [Sample(inputs=[ints(0, 2, 1), np.array(3), (2,)], ways=1)],
    "GRU": [
        Sample(
            inputs=[(2, 3, 4), (1, 18, 4), (1, 18, 6), None, None, (1, 3, 6)],
            attributes=LAYER,
            outputs=2,
            ways=1,
        )
    ],
}


def cases() -> list:
    return [
        pytest.param(name, sample, id=f"{name}-{number}")
        for name, samples in SAMPLES.items()
        for number, sample in enumerate(samples)
    ]


def arrays_of(sample: Sample) -> list[np.ndarray | None]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(each).astype(np.float32) if isinstance(each, tuple) else each
        for each in sample.inputs
    ]


def call_of(name: str, sample: Sample, arrays: list[np.ndarray | None]) -> OnnxCall:
    return OnnxCall(
        inputs=tuple(None if each is None else np.shape(each) for each in arrays),
        result_rank=3 if name == "Expand" else None,
        op_type=name,
        attributes=sample.attributes,
        constant=arrays.__getitem__,
    )


def evaluated(name: str, sample: Sample, arrays: list[np.ndarray | None]) -> list[np.ndarray]:
    inputs = ["" if each is None else f"x{number}" for number, each in enumerate(arrays)]
    outputs = [f"y{number}" for number in range(sample.outputs)]
    node = helper.make_node(name, inputs, outputs, **sample.attributes)
    feeds = {key: np.asarray(each) for key, each in zip(inputs, arrays, strict=True) if key}
    values = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for key, each in feeds.items()
    ]
    results = [helper.make_tensor_value_info(key, TensorProto.UNDEFINED, None) for key in outputs]
    graph = helper.make_graph([node], "g", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    return ReferenceEvaluator(model).run(None, feeds)


@pytest.mark.parametrize(("name", "sample"), cases())
def test_a_permutation_along_a_way_of_an_operator_permutes_its_results(name, sample):
    arrays = arrays_of(sample)
    found = ONNX_RULES[name](call_of(name, sample, arrays))
    assert len(found.ways) == sample.ways
    usual = evaluated(name, sample, arrays)
    for way in found.ways:
        moved = [
            each
            if axis is None or each is None or np.shape(each)[axis] == 1
            else np.roll(each, 1, axis)
            for each, axis in zip(arrays, [*way.inputs, *[None] * len(arrays)], strict=False)
        ]
        axes = [*way.results] * (sample.outputs if len(way.results) == 1 else 1)
        for one, other, axis in zip(usual, evaluated(name, sample, moved), axes, strict=False):
            np.testing.assert_allclose(other, np.roll(one, 1, axis), rtol=1e-5, atol=1e-6)


def test_every_family_with_an_onnx_operator_has_a_sample():
    families = [family.onnx.split() for family in FAMILIES if family.onnx]
    assert [names for names in families if not SAMPLES.keys() & set(names)] == []


def test_an_operator_is_in_one_family():
    assert sum(len(family.onnx.split()) for family in FAMILIES) == len(ONNX_RULES)
    assert sum(len(family.relax.split()) for family in FAMILIES) == len(RELAX_RULES)


def test_every_onnx_operator_of_the_table_exists():
    assert all(onnx.defs.has(name) for name in ONNX_RULES)


@pytest.mark.parametrize(
    ("name", "inputs", "carried", "reason"),
    [
        ("Softmax", [(2, 3)], {0: 1}, "works across the {rows}"),
        ("MatMul", [(2, 3), (3, 4)], {0: 1}, "sums over the {rows}"),
        ("Add", [(2, 3), (2, 3)], {0: 0, 1: 1}, DIFFERENT_AXES),
        ("Conv", [(2, 3, 4, 4), (5, 3, 1, 1)], {1: 0}, PARAMETERS),
    ],
)
def test_the_reason_why_rows_depend_on_each_other(name, inputs, carried, reason):
    sample = Sample(inputs=inputs, ways=0)
    call = call_of(name, sample, arrays_of(sample))
    with pytest.raises(DependentRowsError) as caught:
        carry(call.inputs, carried, ONNX_RULES[name](call))
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("name", "inputs", "required"),
    [
        ("Add", [(2, 3), (3,)], {}),
        ("Add", [(2, 3), (1, 3)], {}),
        ("Add", [(2, 3), (2, 3)], {1: 0}),
        ("Concat", [(1, 3), (1, 3)], {1: 0}),
    ],
)
def test_inputs_that_have_to_carry_rows_too(name, inputs, required):
    sample = Sample(inputs=inputs, attributes={"axis": 1} if name == "Concat" else {}, ways=0)
    call = call_of(name, sample, arrays_of(sample))
    assert carry(call.inputs, {0: 0}, ONNX_RULES[name](call)).required == required
