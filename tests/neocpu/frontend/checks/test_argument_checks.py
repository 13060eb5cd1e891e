"""Arguments that mean nothing are refused with the node's name and the reason."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from neocpu.foundation.errors import NeoCPUError, UnsupportedError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.onnx_models import graph_model, onnx_model

NAN, INF = float("nan"), float("inf")
FORMS = ["Upsample-7", "Upsample-9", "Resize-10", "Resize-11", "Resize-18"]


def model(nodes, constants=(), opset=18):
    """Return a model of ``x`` 1x3x8x8, whose nodes make ``y`` of an unknown shape."""
    return onnx_model(nodes, {"x": [1, 3, 8, 8]}, {"y": None}, dict(constants), opset=opset)


def refusal(proto):
    """Return why a model is refused, without a warning."""
    with pytest.raises(NeoCPUError) as caught:
        import_relax(load_model(proto))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def resize(scales, form):
    """Return a Resize or Upsample of some opset by scales."""
    array = np.array(scales, np.float32)
    if form == "Upsample-7":
        return model([helper.make_node("Upsample", ["x"], ["y"], scales=array.tolist())], opset=8)
    op, inputs, opset = {
        "Upsample-9": ("Upsample", ["x", "s"], 9),
        "Resize-10": ("Resize", ["x", "s"], 10),
        "Resize-11": ("Resize", ["x", "r", "s"], 11),
        "Resize-18": ("Resize", ["x", "", "s"], 18),
    }[form]
    region = np.zeros(0, np.float32)
    return model([helper.make_node(op, inputs, ["y"])], [("s", array), ("r", region)], opset)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [NAN, INF, -INF, 0, -1, 1e30])
def test_scales_that_are_no_numbers_of_pixels(form, scale):
    said = refusal(resize([1, 1, scale, 2], form))
    assert f"'y' has the scale {scale:g} for axis 2; scales are above 0 and at most" in said
    assert said.startswith(("Resize", "Upsample"))


@pytest.mark.parametrize("form", FORMS)
def test_as_many_scales_as_axes(form):
    assert "has 3 scales for 4 axes" in refusal(resize([1, 1, 2], form))
    assert load_model(resize([1, 1, 2, 2], form)).outputs[0].shape == (1, 3, 16, 16)


@pytest.mark.parametrize(
    ("sizes", "axes", "said"),
    [
        ([1, 3, 0, 4], None, "has the size 0 for axis 2"),
        ([1, 3, -2, 4], None, "has the size -2 for axis 2"),
        ([1, 3, 4, 2**40], None, "for axis 3; sizes are above 0 and at most"),
        ([1, 3, 4], None, "has 3 sizes for 4 axes"),
        ([4, 0], [2, 3], "has the size 0 for axis 3"),
        ([4], [2, 3], "has 1 sizes for 2 axes"),
    ],
)
def test_sizes(sizes, axes, said):
    given = {} if axes is None else {"axes": axes}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **given)
    assert said in refusal(model([node], [("s", np.array(sizes))]))


def test_a_region_of_nan():
    how = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    node = helper.make_node("Resize", ["x", "r", "s"], ["y"], **how)
    region = np.array([0, 0, NAN, 0, 1, 1, 1, 1], np.float32)
    constants = [("r", region), ("s", np.array([1, 1, 2, 2], np.float32))]
    assert "has a region that is infinite or NaN" in refusal(model([node], constants))


def numbers(start, limit, delta):
    nodes = "r = Range(a, b, d) c = Cast<to = 1>(r) y = Add(x, c)"
    ends = "(float[1, 3, 8, 8] x) => (float[a, b, c, d] y)"
    return graph_model(f"{ends} {{ {nodes} }}", a=start, b=limit, d=delta)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0.0, 8.0, 0.0), "Range 'r' has the delta 0, so that it never ends"),
        ((0, 8, 0), "Range 'r' has the delta 0"),
        ((0.0, 8.0, NAN), "Range 'r' has the delta nan"),
        ((NAN, 8.0, 1.0), "Range 'r' has the start nan"),
        ((0.0, INF, 1.0), "Range 'r' has the limit inf"),
        ((0.0, -INF, 1.0), "Range 'r' has the limit -inf"),
        ((INF, 8.0, 1.0), "Range 'r' has the start inf"),
        (([0.0], [8.0], [1.0]), r"Range 'r' has a start of shape [1]"),
        ((0.0, 1.0, 1e-30), "Range 'r' makes the numbers from 0 to 1 by 1e-30; at most"),
        ((0, 2**62, 1), "Range 'r' makes the numbers from 0 to"),
    ],
)
def test_ranges_that_have_no_end(given, said):
    assert said in refusal(numbers(*map(np.array, given)))


def test_a_range_whose_delta_is_computed():
    nodes = """s = Shape(x) b = Gather(s, i) d = Sub(b, b) [r] r = Range(d, b, d)
        c = Cast<to = 1>(r) y = Add(x, c)"""
    ends = "(float[1, 3, 8, 8] x) => (float[a, b, c, d] y)"
    found = refusal(graph_model(f"{ends} {{ {nodes} }}", i=np.array(3)))
    assert "Range 'r' has the delta 0" in found


@pytest.mark.parametrize(
    ("equation", "said"),
    [
        ("a" * 5000 + "->a", "which names 5000 dimensions of input 0; at most 32 fit"),
        ("a" * 33, "which names 33 dimensions of input 0; at most 32 fit"),
        ("abc->a", "which names 3 dimensions of input 0, of 4 dimensions"),
        ("a...bcde->a", "which names 5 dimensions of input 0, of 4 dimensions"),
        ("", "which names 0 dimensions of input 0, of 4 dimensions"),
        ("1234->12", "which has '1' in the place of a letter"),
        (".a..b->a", "which has '.' in the place of a letter"),
        ("abcd->ab->a", "which has '-' in the place of a letter"),
        (b"\xff\xfe", "in the place of a letter"),
        ("aé->a", "which has 'é' in the place of a letter"),
        ("abcd,abcd->a", "which is of 2 tensors; the node has 1"),
        ("abcd->abe", "whose result names 'e', which no input has"),
        ("abcd->aab", "whose result names 'a' twice"),
    ],
)
def test_equations_that_mean_nothing(equation, said):
    node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    assert said in (found := refusal(model([node])))
    assert found.startswith("Einsum 'y' has the equation '")
    assert len(found) < 250


@pytest.mark.parametrize(
    "equation",
    ["abcd->a", "a b c d -> d a", "ABcd->B", "...d->...", "abcd", "aBcd -> ", "a...->...a"],
)
def test_equations_that_mean_something(equation):
    node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    import_relax(load_model(model([node])))


@pytest.mark.parametrize("depth", [0, -3, [2, 3]])
def test_depths_of_one_hot(depth):
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("OneHot", ["i", "d", "v"], ["y"]),
    ]
    values = np.array([0, 1], np.float32)
    said = refusal(model(nodes, [("d", np.array(depth)), ("v", values)]))
    assert "OneHot 'y' has the depth" in said


@pytest.mark.parametrize("given", [{}, {"value_int": 3, "value_float": 2.0}])
def test_constants_have_one_value(given):
    nodes = [
        helper.make_node("Constant", [], ["c"], **given),
        helper.make_node("Add", ["x", "c"], "y"),
    ]
    assert f"Constant 'c' has {len(given)} values; a constant has one" in refusal(model(nodes))


@pytest.mark.parametrize(
    ("op", "operand"), [("Tile", [1, 1, -1, 1]), ("TopK", [9]), ("Reshape", [5, -1])]
)
def test_constants_that_are_wrong_are_not_blamed_on_data(op, operand):
    """The message once was: "the shape of output 'y' depends on the data"."""
    outputs = ["y", "z"] if op == "TopK" else ["y"]
    said = refusal(model([helper.make_node(op, ["x", "k"], outputs)], [("k", np.array(operand))]))
    assert "depends on the data" not in said
    assert f"{op} 'y'" in said


def test_a_node_whose_shape_depends_on_data_is_named():
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Shape", ["n"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["y"]),
    ]
    with pytest.raises(UnsupportedError, match="'y'"):
        import_relax(load_model(model(nodes)))


@pytest.mark.parametrize("what", ["trip count", "condition", "If"])
def test_conditions_and_counts_are_single_values(what):
    image = "float[1, 3, 8, 8]"
    node = f"""y = Loop(n, go, x) <body = b (int64 i, bool c, {image} s) => (bool d, {image} t)
        {{ t = Add(s, x) d = Identity(c) }}>"""
    if what == "If":
        node = f"""y = If(go) <then_branch = t () => ({image} t) {{ t = Neg(x) }},
            else_branch = e () => ({image} u) {{ u = Neg(x) }}>"""
    count = [3, 4] if what == "trip count" else 3
    go = True if what == "trip count" else [True, False]
    made = graph_model(f"({image} x) => ({image} y) {{ {node} }}", n=count, go=go)
    assert "of shape [2]; it takes one value" in refusal(made)


def test_text_is_named():
    nodes = [
        helper.make_node("Cast", ["c"], ["t"], to=TensorProto.STRING),
        helper.make_node("Cast", ["t"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    said = refusal(model(nodes, [("c", np.ones(8, np.float32))]))
    assert "Cast 't': it makes strings, which are not supported" in said
    proto = model(nodes[1:])
    proto.graph.initializer.append(helper.make_tensor("t", TensorProto.STRING, [1], [b"abc"]))
    assert "constant 't' of strings" in refusal(proto)


@pytest.mark.parametrize(
    ("equation", "said"),
    [
        ("ab,", "which names 0 dimensions of input 1"),
        ("ab", "which is of 1 tensors; the node has 2"),
    ],
)
def test_equations_of_two_tensors(equation, said):
    node = helper.make_node("Einsum", ["x0", "x1"], ["y"], equation=equation)
    assert said in refusal(onnx_model([node], {"x0": (2, 3), "x1": (3, 4)}, {"y": None}))


@pytest.mark.parametrize(
    ("equation", "shapes", "result"),
    [
        ("ab,bc->ac", [(2, 3), (3, 4)], (2, 4)),
        (" a b , b c ", [(2, 3), (3, 4)], (2, 4)),
        ("...ab,...bc->...ac", [(5, 2, 3), (5, 3, 4)], (5, 2, 4)),
        ("...a->...", [(2, 3)], (2,)),
    ],
)
def test_a_good_equation_passes(equation, shapes, result):
    inputs = {f"x{number}": shape for number, shape in enumerate(shapes)}
    node = helper.make_node("Einsum", list(inputs), ["y"], equation=equation)
    loaded = load_model(onnx_model([node], inputs, {"y": None}))
    assert loaded.outputs[0].shape == result
