"""Operators that the evaluator of onnx lacks, gets wrong or loops over agree with ONNX Runtime."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import load_op
from tvm.relax.frontend.onnx import onnx_frontend

from neocpu.frontend.converters.table import CONVERTERS
from neocpu.frontend.importer import _DYNAMIC_OPS
from neocpu.frontend.numpy_operators.table import OPERATORS
from neocpu.verification.reference import runner
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.differential import make_model, random, run_onnxruntime
from tests.neocpu.frontend.onnx_models import onnx_model
from tests.neocpu.recurrent_layers import BOTH, LAYERS, layer


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


def as_onnx_loops(node, **feeds):
    model = make_model([node], feeds, opset=22, like_first_input=True)
    actual = runner.run_reference(model, feeds)["y"]
    expected = onnx_loops(model, feeds)[0]
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    double = runner.run_reference(model, feeds, double=True)["y"]
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, expected, rtol=1e-4, atol=1e-5)


def onnx_loops(model, feeds):
    return ReferenceEvaluator(model).run(None, feeds)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("masked", [True, False])
def test_convolution_at_offsets(groups, parts, masked):
    geometry = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
    rows, columns = (5 + 3 - 3) // 2 + 1, (7 + 1 - 3) + 1
    feeds = {
        "x": random(2, 6, 5, 7),
        "w": random(3, 6 // groups, 3, 2, seed=1),
        "o": 2 * random(2, parts * 12, rows, columns, seed=2),
        "b": random(3, seed=3),
    }
    if masked:
        feeds["m"] = random(2, parts * 6, rows, columns, seed=4)
    how = geometry | {"group": groups, "offset_group": parts}
    as_onnx_loops(helper.make_node("DeformConv", list(feeds), ["y"], **how), **feeds)


@pytest.mark.parametrize(
    ("image", "block", "how"),
    [
        ([5, 7], [2, 3], {"pads": [1, 0, 1, 2], "strides": [1, 2]}),
        ([5, 7], [2, 3], {"dilations": [2, 1]}),
        ([9], [4], {"strides": [3], "pads": [1, 2]}),
        ([4, 3, 5], [2, 1, 3], {"strides": [1, 2, 1]}),
    ],
)
def test_columns_to_images(image, block, how):
    from neocpu.frontend.numpy_operators.fast_operators import Window

    count = np.prod(Window(image, block, how).out)
    feeds = {"x": random(2, 3 * np.prod(block), count), "i": np.array(image), "b": np.array(block)}
    as_onnx_loops(helper.make_node("Col2Im", list(feeds), ["y"], **how), **feeds)


def test_maxima_of_regions():
    regions = [[0, 0, 0, 6, 4], [1, 2.5, 1.2, 3, 9], [1, 3, 3, 3, 3], [0, 5, 2, 40, 30]]
    feeds = {"x": random(2, 3, 9, 7), "r": np.array(regions, np.float32)}
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[3, 2], spatial_scale=0.5)
    as_onnxruntime(node, feeds)


def as_onnxruntime(node, feeds):
    inputs = {n: (helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()}
    outputs = {node.output[0]: None}
    model = onnx_model([node], inputs, outputs, opset=17, domains=["com.microsoft"])
    actual = runner.run_reference(model, feeds)["y"]
    np.testing.assert_allclose(actual, run_onnxruntime(model, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "Conv"])
def test_pads_that_crop(op):
    """Negative padding equals a preceding Pad of the same amounts."""
    x, how = random(1, 2, 6, 7), {"strides": [2, 1]}
    feeds = {"x": x} | ({"w": random(3, 2, 2, 2, seed=1)} if op == "Conv" else {})
    if op != "Conv":
        how["kernel_shape"] = [2, 2]
    with_pads = helper.make_node(op, list(feeds), ["y"], pads=[-1, 0, 0, -2], **how)
    without = helper.make_node(op, list(feeds), ["y"], **how)
    cropped = {**feeds, "x": x[:, :, 1:, :-2]}
    runs = [
        runner.run_reference(make_model([node], given, like_first_input=True), given)["y"]
        for node, given in ((with_pads, feeds), (without, cropped))
    ]
    np.testing.assert_array_equal(*runs)


def test_words_positions_and_segments():
    words, segments = (
        np.array([[3, 1, 4], [0, 5, 2]], np.int32),
        np.array([[0, 1, 1]] * 2, np.int32),
    )
    tables = {name: random(rows, 16, seed=rows) for name, rows in (("w", 6), ("p", 4), ("s", 2))}
    feeds = {"i": words, "j": segments, **tables, "g": random(16), "h": random(16, seed=1)}
    node = helper.make_node(
        "EmbedLayerNormalization", list(feeds), ["y", "n"], domain="com.microsoft"
    )
    as_onnxruntime(node, feeds)


@pytest.mark.parametrize("double", [True, False])
def test_a_batchs_own_statistics(double):
    names = ["x", "g", "b", "m", "v"]
    vectors = (np.abs(random(3, seed=seed)) for seed in range(4))
    feeds = dict(zip(names, (random(4, 3, 5), *vectors), strict=True))
    node = helper.make_node("BatchNormalization", names, ["y", "rm", "rv"], training_mode=1)
    model = make_model([node], feeds, outputs=["y", "rm", "rv"], opset=15)
    actual = runner.run_reference(model, feeds, double=double)
    for ours, theirs in itertools.zip_longest(actual.values(), onnx_loops(model, feeds)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [np.array(4), np.array([4])])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(depth, axis):
    feeds = {"x": np.array([[0, 3, -1], [-4, 4, 2]]), "v": np.array([2, 5], np.float32)}
    node = helper.make_node("OneHot", ["x", "d", "v"], ["y"], axis=axis)
    model = make_model([node], feeds, {"d": depth}, opset=13)
    actual = runner.run_reference(model, feeds)["y"]
    np.testing.assert_array_equal(actual, run_onnxruntime(model, feeds)[0])


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_operators_agree_with_onnx_runtime(name):
    op, arguments = LAYERS[name]
    model, feeds = layer(op, **arguments)
    found = run_reference(model, feeds).values()
    for actual, expected in zip(found, run_onnxruntime(model, feeds), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_the_batch_first(op):
    """ONNX Runtime refuses this layout."""
    arguments = {"batch": 3, "lengths": [2, 5, 4], "given": "bhc", **BOTH}
    model, feeds = layer(op, **arguments)
    expected = run_reference(model, feeds)
    first, _ = layer(op, layout=1, **arguments)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in first.graph.initializer:
        array = numpy_helper.to_array(constants[tensor.name])
        moved = array.swapaxes(0, 1) if tensor.name in ("h", "c") else array
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(moved), tensor.name))
    found = run_reference(first, {"x": feeds["x"].swapaxes(0, 1)})
    for name, array in expected.items():
        axes = (2, 0, 1, 3) if name == "y" else (1, 0, 2)
        np.testing.assert_allclose(found[name], array.transpose(axes), rtol=1e-6, atol=1e-7)


def test_recurrent_operators_compute_in_float64():
    model, feeds = layer("LSTM", direction="bidirectional")
    exact = run_reference(model, feeds, double=True)
    for name, rounded in run_reference(model, feeds).items():
        assert exact[name].dtype == np.float64
        assert 0 < np.abs(rounded - exact[name]).max() < 1e-6
