"""Operators on every element type that ONNX allows agree with ONNX Runtime or the reference."""

import numpy as np
import onnx
import pytest
from differential import ints, one_op, run_imported, run_onnxruntime
from onnx import helper

from neocpu.verification.reference.runner import run_reference

TYPES = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (np.abs(rng.standard_normal(shape)) + 1).astype(dtype)
    return rng.integers(1 if dtype[0] == "u" else -4, 9, shape).astype(dtype)


def takes(op: str, dtype: str, opset: int = 18) -> bool:
    schema = onnx.defs.get_schema(op, opset)
    kind = helper.tensor_dtype_to_string(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    name = kind.removeprefix("TensorProto.").lower()
    name = {"float": "tensor(float)"}.get(name, f"tensor({name})")
    by_symbol = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return name in by_symbol[schema.inputs[0].type_str]


def check(op: str, x: np.ndarray, constants=(), outputs=1, opset=18, **attrs) -> None:
    if not takes(op, str(x.dtype), opset):
        pytest.skip("ONNX has no such operator")
    made = one_op(op, x, constants, opset, outputs, **attrs)
    try:
        expected = run_onnxruntime(made, {"x": x})
    except Exception:  # it has no kernel for the type
        expected = list(run_reference(made, {"x": x}).values())
    _, _, actual = run_imported(made, {"x": x})
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-2 if x.dtype == np.float16 else 1e-5)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "op", [f"Reduce{kind}" for kind in "L1 L2 LogSumExp Max Mean Min Prod Sum SumSquare".split()]
)
def test_reductions(op, dtype):
    check(op, numbers(dtype, (2, 3, 4)), [ints(1)])


@pytest.mark.parametrize("dtype", TYPES)
def test_the_logarithm_of_a_sum(dtype):
    check("ReduceLogSum", np.abs(numbers(dtype, (2, 3, 4)).astype("float64")).astype(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(dtype, largest):
    check("TopK", numbers(dtype, (2, 13, 3)), [ints(5)], outputs=2, axis=1, largest=largest)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_all_64_bits(dtype, largest):
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**63), 2**63, (2, 50)).astype("int64")
    x = np.ldexp(x.astype("float64"), x % 600 - 300) if dtype == "float64" else x.astype(dtype)
    check("TopK", x, [ints(7)], outputs=2, largest=largest)


@pytest.mark.parametrize("dtype", TYPES)
def test_slopes(dtype):
    check("PRelu", numbers(dtype, (2, 3, 4)), [numbers(dtype, (4,), seed=1)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", ["Abs", "Neg", "Sign"])
def test_signs(op, dtype):
    check(op, numbers(dtype, (2, 3)))
