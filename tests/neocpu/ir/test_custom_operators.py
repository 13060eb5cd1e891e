"""Operators that other packages add: found, inferred, compiled, checked, and their failures."""

import importlib.util
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from tvm import te, tirx
from tvm.script import tirx as T

import neocpu
from neocpu.foundation.errors import AccuracyError, UnsupportedError, UsageError
from neocpu.ir.custom_operators import registry
from neocpu.verification.reference.runner import run_reference

EXAMPLE = Path(__file__).parents[3] / "examples" / "custom_operator"
X = np.random.default_rng(0).standard_normal((1, 3, 5, 7)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """Start without registered or installed operators; return the function that finds them."""
    look = registry._installed.__wrapped__
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.setattr(registry, "_installed", dict)
    return look


def model(op, inputs=("x",), outputs=("z",), shape=X.shape, before="Relu", **attributes):
    """A custom node between standard ones, with weights ``w``."""
    weights = np.arange(3, dtype=np.float32).reshape(3, 1, 1)
    graph = helper.make_graph(
        [
            helper.make_node(before, ["image"], ["x"]),
            helper.make_node(op, inputs, outputs, name="the_node", domain="house", **attributes),
            helper.make_node("Neg", [outputs[-1]], ["y"]),
        ],
        "custom",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list("abcd"))],
        [numpy_helper.from_array(weights, "w")],
    )
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("house", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def compiled_outputs(made):
    with neocpu.compile(made, threads=1) as compiled, compiled.module() as module:
        return module.run({"image": X})["y"]


def scaled(inputs, attributes):
    x, factors = inputs
    return te.compute(x.shape, lambda n, c, i, j: x[n, c, i, j] * factors[c, 0, 0])


def test_an_operator_with_weights():
    operator = neocpu.CustomOperator(
        "house", "Scale", scaled, lambda inputs, _: np.multiply(*inputs)
    )
    neocpu.register_operator(operator)
    expected = -np.maximum(X, 0) * np.arange(3, dtype=np.float32).reshape(3, 1, 1)
    np.testing.assert_array_equal(compiled_outputs(model("Scale", ["x", "w"])), expected)


def test_an_operator_in_a_long_loop():
    operator = neocpu.CustomOperator(
        "house", "Scale", scaled, lambda inputs, _: np.multiply(*inputs)
    )
    neocpu.register_operator(operator)
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 16, "house" : 1]>
        g (float[1,3,5,7] image) => (float[1,3,5,7] y) {
          w = Constant<value = float[3,1,1] {0.5, 1, 0.75}>()
          count = Constant<value = int64 {300}>()
          y = Loop (count, , image) <body = b (int64 i, bool c, float[1,3,5,7] s)
              => (bool d, float[1,3,5,7] t) {
            d = Identity(c) u = house.Scale(s, w) t = Sin(u) }>
        }""")
    with neocpu.compile(made, threads=1) as compiled, compiled.module() as module:
        assert [repeat.limit for repeat in compiled.header.repeats] == [300]
        expected = run_reference(made, {"image": X})["y"]
        np.testing.assert_allclose(module.run({"image": X})["y"], expected, rtol=1e-5, atol=1e-6)


def test_attributes_inputs_left_out_and_several_outputs():
    seen = {}

    def compute(inputs, attributes):
        nothing, x = inputs
        seen.update(attributes)
        assert nothing is None
        halves = te.compute(x.shape[:2], lambda n, c: x[n, c, 0, 0] / 2)
        return halves, te.compute((*x.shape[:3], 2), lambda n, c, i, j: x[n, c, i, j + 1])

    def reference(inputs, attributes):
        assert inputs[0] is None
        assert attributes == seen
        return inputs[1][:, :, 0, 0] / 2, inputs[1][..., 1:3]

    neocpu.register_operator(neocpu.CustomOperator("house", "Odd", compute, reference))
    attributes = {"n": 3, "f": 0.5, "text": "ä", "several": [1, 2], "words": ["a", "b"]}
    made = model("Odd", ["", "x"], ["halves", "z"], **attributes)
    np.testing.assert_array_equal(compiled_outputs(made), -np.maximum(X, 0)[..., 1:3])
    assert seen == attributes


def test_a_scheduled_function():
    @T.prim_func(s_tir=True)
    def doubled(x: T.Buffer((1, 3, 5, 7), "float32"), y: T.Buffer((1, 3, 5, 7), "float32")):
        for c, i, j in T.grid(3, 5, 7):
            with T.sblock("double"):
                a, b, d = T.axis.remap("SSS", [c, i, j])
                y[0, a, b, d] = x[0, a, b, d] * T.float32(2)

    operator = neocpu.CustomOperator("house", "Double", lambda *_: doubled, lambda x, _: x[0] * 2)
    neocpu.register_operator(operator)
    np.testing.assert_array_equal(compiled_outputs(model("Double")), -2 * np.maximum(X, 0))


def test_the_reference_is_asked_in_float64():
    types = []

    def reference(inputs, attributes):
        types.append(inputs[0].dtype)
        return inputs[0]

    neocpu.register_operator(neocpu.CustomOperator("house", "Same", lambda x, _: x[0], reference))
    run_reference(model("Same"), {"image": X}, double=True)
    run_reference(model("Same"), {"image": X})
    assert types == [np.float64, np.float32]


def test_a_wrong_operator_is_refused():
    def compute(inputs, attributes):
        return te.compute(inputs[0].shape, lambda *i: inputs[0](*i) + tirx.const(1, "float32"))

    neocpu.register_operator(neocpu.CustomOperator("house", "Off", compute, lambda x, _: x[0]))
    with pytest.raises(AccuracyError, match="differs from the reference"):
        neocpu.compile(model("Off"), threads=1)


def bad(*_):
    raise KeyError("no such\nthing")


class Ending:
    """An object that ends the program when it is converted to an array."""

    def __array__(self, *_, **__):
        raise SystemExit(0)


FAILURES = {
    "compute": (bad, None, UnsupportedError, "fails at node 'the_node': KeyError: 'no such"),
    "no tensor": (lambda *_: 3, None, UnsupportedError, "TypeError: it returns int, not te.Tensor"),
    "reference": (
        lambda x, _: te.compute(x[0].shape, x[0]),
        bad,
        AccuracyError,
        r"\(numpy: custom operator house::Bad of package test.* fails at node 'the_node': KeyError",
    ),
    "no array": (
        lambda x, _: te.compute(x[0].shape, x[0]),
        lambda *_: Ending(),
        AccuracyError,
        "fails at node 'the_node': it ends the program",
    ),
    "objects": (
        lambda x, _: te.compute(x[0].shape, x[0]),
        lambda x, _: x[0].astype(object),
        AccuracyError,
        "TypeError: its reference makes object values, not numbers",
    ),
    "no reference": (
        lambda x, _: te.compute(x[0].shape, x[0]),
        None,
        AccuracyError,
        "has no reference.*: pass verify=False",
    ),
}


def test_fewer_outputs_than_a_node_has():
    def compute(inputs, _):
        return te.compute(inputs[0].shape, inputs[0])

    neocpu.register_operator(neocpu.CustomOperator("house", "Few", compute, None))
    with pytest.raises(UnsupportedError, match="ValueError: it makes 1 outputs, the node has 2"):
        neocpu.compile(model("Few", outputs=("more", "z")), threads=1)


@pytest.mark.parametrize("what", FAILURES)
def test_failing_operators_are_named_in_one_line(what):
    compute, reference, kind, message = FAILURES[what]
    neocpu.register_operator(neocpu.CustomOperator("house", "Bad", compute, reference))
    with pytest.raises(kind, match=message) as refused:
        neocpu.compile(model("Bad"), threads=1)
    assert "\n" not in str(refused.value)
    assert "house::Bad" in str(refused.value)


def test_without_the_operator_its_domain_is_named():
    with pytest.raises(UnsupportedError, match=r"house::Missing \(1x, first 'the_node'"):
        neocpu.compile(model("Missing"), threads=1)


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_standard_operators_are_not_replaced(domain):
    with pytest.raises(UsageError, match="domain of its own"):
        neocpu.CustomOperator(domain, "Relu", scaled)


def test_something_else_is_not_registered():
    with pytest.raises(UsageError, match=r"not a neocpu.CustomOperator: 'Relu'"):
        neocpu.register_operator("Relu")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (
            "raise OSError('no\\nlicence')",
            "ops_a",
            "--operators ops_a cannot be loaded .*OSError: no",
        ),
        ("", "ops_b:THIS", "cannot be loaded from ops_b:THIS: AttributeError"),
        ("OPERATORS = 3", "ops_c", "ops_c:OPERATORS is not a neocpu.CustomOperator: 3"),
        (None, "ops_d", "ModuleNotFoundError"),
        (
            "class X:\n  def __repr__(self): raise SystemExit(0)\nOPERATORS = X()",
            "ops_g",
            "cannot be loaded from ops_g:OPERATORS: it ends the program",
        ),
    ],
)
def test_a_module_without_operators_is_refused(tmp_path, monkeypatch, text, name, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    if text is not None:
        Path(f"{name.partition(':')[0]}.py").write_text(text)
    with pytest.raises(UsageError, match=message) as refused:
        registry.register_named([name])
    assert "\n" not in str(refused.value)


def test_a_folder_that_nobody_named_is_no_package(tmp_path, monkeypatch):
    """An example is a virtual environment ``torch``, which TVM would take for PyTorch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    Path("environment", "bin").mkdir(parents=True)
    Path("ops_f.py").write_text("OPERATORS = []")
    Path("ops_e").mkdir()
    Path("ops_e", "all.py").write_text("import ops_f; OPERATORS = ops_f.OPERATORS")
    registry.register_named(["ops_e.all"])
    assert importlib.util.find_spec("environment") is None
    assert importlib.util.find_spec("ops_f") is not None


def test_the_example(tmp_path, monkeypatch, no_cache):
    """The example is named by --operators in its folder, and found by its entry point."""
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    monkeypatch.chdir(source)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    runpy.run_path("make_model.py")
    with pytest.raises(UnsupportedError, match=r"pixel_norm::PixelNorm \(1x, first 'norm'"):
        neocpu.compile("pixel_norm.onnx", threads=1)
    registry.register_named(["neocpu_pixel_norm"])
    with neocpu.compile("pixel_norm.onnx", threads=1) as compiled:
        assert compiled.plan.verification.oracle_reason == ""
    command = f"{sys.executable} -m pip install --no-index --no-deps --no-build-isolation --quiet"
    where = tmp_path / "installed"
    subprocess.run([*command.split(), "--target", where, source], check=True, cwd=tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.syspath_prepend(where)
    found = no_cache()["pixel_norm", "PixelNorm"]
    assert found.package == "neocpu_pixel_norm"


def ending(*_):
    sys.exit(0)


@pytest.mark.parametrize("part", ["compute", "reference"])
def test_an_operator_that_ends_the_program_fails(part):
    functions = {"compute": lambda x, _: x[0], "reference": lambda x, _: x[0], part: ending}
    neocpu.register_operator(neocpu.CustomOperator("house", "End", **functions))
    error = UnsupportedError if part == "compute" else AccuracyError
    with pytest.raises(error, match=r"it ends the program, by sys\.exit\(0\)"):
        neocpu.compile(model("End"))


def test_a_module_of_operators_that_ends_the_program_is_named(tmp_path, monkeypatch):
    (tmp_path / "ending_operators.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"cannot be loaded .* by sys\.exit\(0\)"):
        registry.register_named(["ending_operators"])


def test_an_operator_may_return_an_input_as_it_is():
    neocpu.register_operator(
        neocpu.CustomOperator("house", "Same", lambda x, _: x[0], lambda x, _: x[0])
    )
    np.testing.assert_array_equal(compiled_outputs(model("Same")), -np.maximum(X, 0))


def test_an_installed_package_that_exits_is_named(tmp_path, monkeypatch, no_cache):
    (tmp_path / "ending.py").write_text("import sys\nsys.exit(0)\n")
    folder = tmp_path / "ending-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ending\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[neocpu.operators]\nodd = ending:OPERATORS\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_installed", no_cache)
    named = r"entry point 'odd' of package ending .* it ends the program, by sys\.exit\(0\)"
    with pytest.raises(UsageError, match=named):
        registry.find_operator("house", "Odd")
