"""Operators that onnx's evaluator lacks or gets wrong agree with ONNX Runtime."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference.ops import load_op
from tvm.relax.frontend.onnx import onnx_frontend

from neocpu.frontend.converters.table import CONVERTERS
from neocpu.frontend.importer import _DYNAMIC_OPS
from neocpu.frontend.numpy_operators.table import OPERATORS
from neocpu.verification.reference import runner
from tests.neocpu.frontend.differential import make_model, random, run_onnxruntime


def check(node, opset=16, **feeds):
    model = make_model([node], feeds, opset=opset)
    actual = runner.run_reference(model, feeds)["y"]
    (expected,) = run_onnxruntime(model, feeds)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(1, 3, 5), (2, 1, 5), (2, 3, 4, 5), (1, 3, 2, 4, 5)])
def test_global_pools(op, shape):
    check(helper.make_node(op, ["x"], ["y"]), x=random(*shape))


def test_means_of_tensors_that_broadcast():
    node = helper.make_node("Mean", ["a", "b", "c"], ["y"])
    check(node, a=random(2, 1), b=random(1), c=random(2, 11))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bid,bjd->bij", [(2, 3, 5), (2, 7, 5)]),
        ("bqc, bchw -> bqhw", [(2, 3, 5), (2, 5, 4, 7)]),
        ("ib,bj->jbi", [(3, 2), (2, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ab,ab->", [(3, 4), (3, 4)]),
        ("ab,bc", [(3, 4), (4, 2)]),  # its result is left out,
        ("aab,b->a", [(3, 3, 4), (4,)]),  # a diagonal,
        ("abc,b->b", [(3, 4, 2), (4,)]),  # a sum of one tensor alone,
        ("...a,...ab->...b", [(5, 3), (5, 3, 4)]),
        ("ij->ji", [(3, 4)]),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ],
)
def test_einsteins_sums(equation, shapes):
    feeds = {f"x{i}": random(*shape, seed=i) for i, shape in enumerate(shapes)}
    check(helper.make_node("Einsum", list(feeds), ["y"], equation=equation), **feeds)


def test_sums_along_an_axis_in_a_list():
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], reverse=1, exclusive=1)
    check(node, x=random(3, 4), axis=np.array([1]))


def test_operators_in_functions_use_our_definitions_too():
    """Onnx's evaluator uses another epsilon in batch normalisation of old opsets."""
    names = ["x", "scale", "bias", "mean", "variance"]
    feeds = dict(zip(names, [random(1, 3, 2, 2), *np.abs(random(4, 3)) / 50], strict=True))
    inner = helper.make_node("BatchNormalization", names, ["y"])
    model = make_model([inner], feeds, opset=9)
    imports = [helper.make_opsetid("", 9), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "f", names, ["y"], [inner], imports[:1])
    model.graph.node[0].op_type, model.graph.node[0].domain = "f", "local"
    model.functions.append(function)
    model.opset_import.append(imports[1])
    model.ir_version = 8
    actual = runner.run_reference(model, feeds)["y"]
    (expected,) = run_onnxruntime(model, feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_norms_power(p):
    check(helper.make_node("GlobalLpPool", ["x"], ["y"], p=p), x=random(2, 3, 4, 5))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_norms_along_an_axis(axis, p):
    x = random(3, 4, 5)
    x[:, 1] = 0
    check(helper.make_node("LpNormalization", ["x"], ["y"], axis=axis, p=p), x=x)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("pads", [[0, 1, 2, 0, 2, 1], [0, -1, 2, 0, -2, 1], [1, -3, 0, 0, 2, -1]])
def test_padding_that_crops(mode, pads):
    if mode == "reflect":
        pads = [min(pad, 1) for pad in pads]
    node = helper.make_node("Pad", ["x", "pads", "fill"], ["y"], mode=mode)
    x = random(2, 5, 4)
    fill = {} if mode != "constant" else {"fill": np.array(1.5, np.float32)}
    node.input[2] = "fill" if fill else ""
    check(node, x=x, pads=np.array(pads), **fill)


def test_padding_as_an_attribute():
    node = helper.make_node("Pad", ["x"], ["y"], pads=[0, 1, 2, 0, -2, 1], value=2.0)
    check(node, opset=10, x=random(2, 5, 4))


@pytest.mark.parametrize("names", [("bilinear", "nearest", "bicubic"), ("linear", "cubic")])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(names, padding, align):
    opset = 16 if "bilinear" in names else 20
    grid = random(2, 5, 7, 2, seed=1) * 1.2
    for mode, shape in itertools.product(names, [(2, 3, 5, 7), (2, 1, 1, 4)]):
        if mode == "nearest":  # away from the middle between two pixels
            grid = np.float32(0.13) + np.round(grid * 4) / 4
        attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
        node = helper.make_node("GridSample", ["x", "g"], ["y"], **attributes)
        check(node, opset, x=random(*shape), g=grid.astype(np.float32))


def test_grid_sample_of_volumes():
    grid = random(2, 2, 5, 4, 3, seed=1)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="linear")
    check(node, 20, x=random(2, 3, 5, 6, 7), g=grid)


@pytest.mark.parametrize(("opset", "axis"), [(10, None), (13, 1), (13, -1), (18, 0), (21, 2)])
@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32])
@pytest.mark.parametrize("with_zero", [True, False])
def test_dequantize(opset, axis, kind, with_zero):
    x = np.arange(24).reshape(2, 3, 4).astype(kind)
    count = () if axis is None else (x.shape[axis],)
    feeds = {"x": x, "s": np.asarray(np.abs(random(*count)) + np.float32(0.1), np.float32)}
    if with_zero:  # of int32 it must be zero
        feeds["z"] = np.full(count, 0 if kind is np.int32 else 3, kind)
    attributes = {} if axis is None else {"axis": axis}
    check(helper.make_node("DequantizeLinear", list(feeds), ["y"], **attributes), opset, **feeds)


def test_dequantize_by_blocks():
    x = np.arange(42).reshape(6, 7).astype(np.uint8)
    scale, zero = np.abs(random(6, 3)), np.arange(18).reshape(6, 3).astype(np.uint8)
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=1, block_size=3)
    check(node, 21, x=x, s=scale, z=zero)


def test_scatter_by_its_old_name():
    node = helper.make_node("Scatter", ["x", "i", "u"], ["y"], axis=1)
    check(node, 10, x=random(2, 5), i=np.array([[1, 3], [4, 0]]), u=random(2, 2, seed=1))


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(opset, mode, ratio):
    regions = np.array(
        [[0.3, 0.2, 6.1, 5.2], [1, 1, 1.2, 1.3], [0, 0, 3, 4], [3, 2, 1, 1], [-9, -9, 30, 30]],
        np.float32,
    )
    sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.5}
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], mode=mode, **sizes)
    check(node, opset, x=random(2, 3, 9, 7), r=regions, b=np.array([0, 1, 1, 0, 1]))


def of_any_shape() -> list[str]:
    """Return the operators that take one or two tensors of numbers of any shape."""
    found = []
    for op in sorted(set(onnx_frontend._get_convert_map()) | set(CONVERTERS)):
        if onnx.defs.has(op, OPSET, ""):
            schema = onnx.defs.get_schema(op, OPSET, "")
            kinds = {formal.name: formal.option.name for formal in schema.inputs}
            needed = [name for name, option in kinds.items() if option == "Single"]
            required = any(attribute.required for attribute in schema.attributes.values())
            if len(needed) in (1, 2) and not required and len(schema.outputs) == 1:
                found.append(op)
    return [op for op in found if op != "NonZero"]


OPSET = 21


@pytest.mark.filterwarnings("ignore")
def test_numbers_without_dimensions():
    checked, failures = 0, []
    for op in of_any_shape():
        schema = onnx.defs.get_schema(op, OPSET, "")
        names = [f.name for f in schema.inputs if f.option.name == "Single"]
        feeds = {name: np.array(0.7 + i, np.float32) for i, name in enumerate(names)}
        try:
            model = make_model([helper.make_node(op, names, ["y"])], feeds, opset=OPSET)
            (expected,) = run_onnxruntime(model, feeds)
        except Exception:  # it takes no such numbers
            continue
        checked += 1
        try:
            actual = runner.run_reference(model, feeds)["y"]
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
        except Exception as error:
            failures.append(f"{op}: {error}")
    assert not failures
    assert checked > 50


def test_every_importable_operator_can_be_verified():
    """Every operator, in every opset from the oldest that the reference reads."""
    ours = {operator.__name__ for operator in OPERATORS}
    importable = (set(onnx_frontend._get_convert_map()) | set(CONVERTERS)) - _DYNAMIC_OPS - ours
    lacking = []
    for op, opset in itertools.product(sorted(importable), range(7, 25)):
        if not onnx.defs.has(op, opset, "") or onnx.defs.get_schema(op, opset, "").deprecated:
            continue
        schema = onnx.defs.get_schema(op, opset, "")
        try:
            load_op("", op, opset)
        except Exception:
            if not (schema.has_function or schema.has_context_dependent_function):
                lacking.append((op, opset))
    assert not lacking


@pytest.mark.parametrize(
    ("op", "constants", "shape"),
    [
        ("Flatten", [], (0, 144)),
        ("GlobalAveragePool", [], (0, 4, 1, 1)),
        ("Conv", [random(8, 1, 3, 3)], (0, 8, 4, 4)),
        ("ConvTranspose", [random(4, 2, 2, 2)], (0, 2, 7, 7)),
    ],
)
def test_no_images(op, constants, shape):
    attributes = {"group": 4} if op == "Conv" else {}
    feeds = {"x": random(1, 4, 6, 6)[:0]} | {f"c{i}": c for i, c in enumerate(constants)}
    nodes = [helper.make_node(op, list(feeds), ["y"], **attributes)]
    given = {**feeds, "x": random(1, 4, 6, 6)}
    model = make_model(nodes, given)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert runner.run_reference(model, feeds)["y"].shape == shape
