"""Messages list all operators that cannot be compiled at once, and say what to do."""

import onnx
import pytest
from onnx import TensorProto, helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend import importer
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.frontend.unsupported import _STANDARD, hint
from tests.neocpu.frontend.onnx_models import graph_model, onnx_model

DOMAINS = ("com.microsoft", "ai.onnx.ml", "house")


def model(*nodes, opset=18, functions=()):
    """A model from ``x`` to ``y``."""
    ends = {"x": (1, 3, 8, 8)}, {"y": list("abcd")}
    return onnx_model(nodes, *ends, opset=opset, domains=DOMAINS, functions=functions)


def refusal(made):
    with pytest.raises(UnsupportedError) as refused:
        import_relax(load_model(made))
    text = str(refused.value)
    assert "\n" not in text
    return text


def chain(*ops):
    """Nodes one after the other, each an operator or a pair of domain and operator."""
    names = ["x", *(f"t{i}" for i in range(1, len(ops))), "y"]
    pairs = [("", op) if isinstance(op, str) else op for op in ops]
    return [
        helper.make_node(op, [a], [b], name=f"n{i}", domain=domain)
        for i, ((domain, op), a, b) in enumerate(zip(pairs, names[:-1], names[1:], strict=True))
    ]


def test_only_misspelt_names_are_spelt_otherwise():
    assert hint("", "Convv", ["Conv"]) == "; did you mean 'Conv'?"
    assert hint("", "Det", ["Dot"]) == ""
    assert hint("", "Upsample", ["Upsampled"]) == ""


@pytest.mark.parametrize(("names", "advice"), _STANDARD.items())
def test_advice_comes_before_a_similar_name(names, advice):
    for name in names.split():
        assert hint("", name, [f"{name}s"]) == f"; {advice}"


def test_every_operator_that_cannot_be_compiled_has_advice(monkeypatch):
    known = set()
    monkeypatch.setattr(
        importer, "refuse_unsupported", lambda nodes, names, supports: known.update(names)
    )
    importer.require_supported([])
    defined = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    written_in_others_when_read = {"QLinearConv", "QLinearMatMul"}
    assert set(" ".join(_STANDARD).split()) == defined - known - written_in_others_when_read


@pytest.mark.parametrize(
    ("domain", "name", "words"),
    [
        ("", "RandomNormalLike", "evaluation mode"),
        ("", "TfIdfVectorizer", "text outside"),
        ("ai.onnx.ml", "TreeEnsembleClassifier", "another runtime"),
        ("ai.onnx.preview.training", "Adam", "inference graph"),
        ("com.microsoft", "SoftmaxGrad", "inference graph"),
        ("com.microsoft", "FusedConv", "before onnxruntime or optimum optimised it"),
        ("com.microsoft.nchwc", "Conv", "before it optimised it"),
        ("", "EfficientNMS_TRT", "TensorRT"),
        ("TRT_PluginV2", "BatchedNMS", "TensorRT"),
        ("mmdeploy", "MMCVRoIAlign", "docs/models.md"),
    ],
)
def test_messages_give_advice_for_the_operator(domain, name, words):
    assert words in hint(domain, name, ["Conv"])


def test_misspelt_operators_are_listed_with_those_of_other_domains():
    text = refusal(model(*chain("Relu", "Sigmoidd", ("house", "Own"), ("com.microsoft", "FusedX"))))
    assert "Sigmoidd (1x, first 'n1'; did you mean 'Sigmoid'?)" in text
    assert "house::Own (1x, first 'n2'; add it by a package" in text
    assert "com.microsoft::FusedX (1x, first 'n3'" in text


def test_operators_in_branches_and_functions_are_listed_too():
    inner = [
        helper.make_node("Inner", ["x"], ["q"], domain="house", name="inner"),
        helper.make_node("Det", ["q"], ["z"], name="known"),
    ]
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    body = helper.make_graph(inner, "body", [], [result])
    scaler = helper.make_node("Scaler", ["a"], ["b"], domain="ai.onnx.ml", name="in_f")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    function = helper.make_function("house", "F", ["a"], ["b"], [scaler], imports)
    made = model(
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["z"], name="if", then_branch=body, else_branch=body),
        helper.make_node("F", ["x"], ["g"], domain="house", name="call"),
        helper.make_node("Add", ["z", "g"], ["y"]),
        functions=[function],
    )
    text = refusal(made)
    for part in ("house::Inner (2x, first 'inner'", "ai.onnx.ml::Scaler (1x"):
        assert part in text


def test_all_unsupported_forms_of_operators_are_listed():
    nodes = """[first] a = Gelu<approximate = "perhaps">(x) b = Relu(a) t = Tanh(x)
        [second] c = Gelu<approximate = "perhaps">(t) [third] d = Gelu<approximate = "never">(x)
        y = Sum(b, c, d)"""
    made = graph_model(f"(float[1, 3, 8, 8] x) => (float[a, b, c, d] y) {{ {nodes} }}", opset=20)
    assert refusal(made) == (
        "cannot compile Gelu 'first' and 1 more: its approximate 'perhaps' is none of none, tanh; "
        "Gelu 'third': its approximate 'never' is none of none, tanh"
    )
