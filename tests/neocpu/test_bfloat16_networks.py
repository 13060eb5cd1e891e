"""Float32 networks whose convolutions and dense layers read bfloat16."""

from __future__ import annotations

import json
import subprocess
from functools import partial

import needs
import numpy as np
import onnx
import pytest

import neocpu
from neocpu.compilation.accuracy_fallback import verifier_of
from neocpu.compilation.network_tuning import measured_schemes, open_store
from neocpu.compilation.read_model import read_network
from neocpu.foundation.errors import TargetError, UsageError
from neocpu.foundation.instruction_sets import host_features
from neocpu.frontend.load import load_model
from neocpu.frontend.models import build
from neocpu.plan.outcome import Promise
from neocpu.planning.costs import CostModel
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.accuracy import BFLOAT16, DEFAULT
from neocpu.schedules.vocabulary.target_parsing import host_target, parse_target
from tests.neocpu.quantised_models import image, network, quantised, run_onnxruntime

HALF_OR_NOT = {"bfloat16", "float32"}


def of_kind(plan, kind):
    return [op for op in plan.ops if op.kind == kind]


def test_outputs_err_as_bfloat16_does():
    model = network()
    with neocpu.compile(model, precision="bf16", threads=2) as compiled:
        found = compiled.module()(image(3))
        plan = compiled.plan
        error = compiled.verification.norm_error
    expected = run_onnxruntime(model, image(3))
    norm = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 1e-4 < error < 2.0**-6, "rounded, and no more than that"
    assert 1e-4 < norm < 2.0**-6
    assert plan.accuracy == Promise(name="bfloat16", bound=2.0**-8)
    assert plan.verification.kept
    assert plan.missed == ()
    assert "bf16" in {op.precision for op in of_kind(plan, "conv2d")}


def test_every_convolution_may_stay_in_float32():
    read = read_network(network())
    chosen = read.computing(Precision.BF16, parse_target("llvm -mcpu=znver4"))
    assert all({w.numerics.data for w, _ in c.ways} == HALF_OR_NOT for c in chosen.convs)


@pytest.mark.parametrize("cpu", ["znver4", "haswell"])
@pytest.mark.parametrize("name", needs.repeated(["resnet18", "vgg11", "unet"], {"vgg11", "unet"}))
def test_bfloat16_is_predicted_to_be_no_slower_than_float32(name, cpu):
    """Each convolution takes the faster precision, given the formats of its neighbours."""
    target, read = parse_target(f"llvm -mcpu={cpu}"), read_network(build(name, image=(64, 64)))
    costs = CostModel(
        target=target, threads=2, measured=partial(measured_schemes, open_store(()), target, 2)
    )
    seconds = {
        precision: plan_layouts(
            read.computing(precision, target), costs, OptLevel.GLOBAL
        ).search.cost
        for precision in (Precision.BF16, Precision.FP32)
    }
    assert seconds[Precision.BF16] <= seconds[Precision.FP32]


def test_neighbours_agree_on_bfloat16():
    """A result is rounded once, when the convolution stores it for its reader."""
    with neocpu.compile(network(), precision="bf16", verify=False) as compiled:
        plan = compiled.plan
    block = of_kind(plan, "conv2d")[1:3]
    assert all("bfloat16" in op.in_layout for op in block)
    assert "bfloat16" in block[0].out_layout
    assert sum(t.source == "NCHW" for t in plan.transforms) <= 1, "the image"


def test_weights_take_half():
    sizes = {}
    for precision in ("bf16", "fp32"):
        with neocpu.compile(
            build("resnet18", image=(64, 64)),
            precision=precision,
            algorithms=["direct", "pointwise"],
            verify=False,
        ) as compiled:
            sizes[precision] = compiled.path.stat().st_size
    assert sizes["bf16"] < 0.55 * sizes["fp32"]


def test_depthwise_convolutions_read_bfloat16():
    model = onnx.version_converter.convert_version(build("mobilenet_v2", image=(64, 64)), 17)
    with neocpu.compile(model, precision="bf16", small=True, verify=False) as compiled:
        x = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float32)
        found, plan = compiled.module()(x), compiled.plan
    kinds = {(op.scheme.template, op.precision) for op in of_kind(plan, "conv2d")}
    products = "conv2d_matrix" if needs.HAS_TILES else "conv2d_dot"
    assert kinds >= {(products, "bf16"), ("conv2d_depthwise", "bf16")}
    expected = run_onnxruntime(model, x)
    assert np.linalg.norm(found - expected) <= 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("precision", ["auto", "fp32", "int8"])
def test_nothing_else_takes_bfloat16(precision):
    model = quantised(network()) if precision == "int8" else network()
    with neocpu.compile(model, precision=precision, verify=False) as compiled:
        assert "bf16" not in {op.precision for op in compiled.plan.ops}
        assert compiled.plan.accuracy.name == "default"


def test_quantised_convolutions_do_not_become_bfloat16():
    """They would compute something else than the model says."""
    with neocpu.compile(quantised(network()), precision="bf16", verify=False) as compiled:
        assert {op.precision for op in of_kind(compiled.plan, "conv2d")} == {"fp32"}


def test_bfloat16_has_its_own_error_bound():
    with pytest.raises(UsageError, match="strict' is of float32: drop it, or precision='bf16'"):
        neocpu.compile(network(), precision="bf16", accuracy="strict")
    with pytest.raises(UsageError, match="int8' or auto, not bf16"):
        neocpu.compile_calibrated(network(), image(0), precision="bf16")


def test_each_part_of_a_fat_file_keeps_a_promise_of_its_own(tmp_path):
    path = tmp_path / "fat.so"
    parts = neocpu.compile_fat(network(), ("avx2:fp32", "znver1:bf16"), path)
    promised = [part.compiled.plan.accuracy.name for part in parts]
    assert promised == ["default", "bfloat16"]
    errors = [
        part.compiled.plan.verification.norm_error for part in parts if part.compiled.verification
    ]
    assert errors[0] < 1e-4
    assert all(error > 1e-4 for error in errors[1:])  # Intel CPUs run no code for AMD's


@pytest.mark.skipif(not {"avx2", "fma"} <= host_features(), reason="measures kernels of AVX2")
@needs.everything()
def test_kernels_of_bfloat16_are_tuned(tmp_path):
    """Kernels of a bfloat16 part of a fat artifact are tuned too."""
    database = tmp_path / "records.jsonl"
    settings = {"databases": [database], "only_databases": True, "verify": False}
    (part,) = neocpu.compile_fat(
        network(), ("avx2:bf16",), tmp_path / "fat.so", tune_budget=5, **settings
    )
    assert part.compiled.tuned is not None
    records = [json.loads(line) for line in database.read_text().splitlines()]
    halves = [r for r in records if r["workload"].get("numerics", {}).get("data") == "bfloat16"]
    assert any(not record.get("error") for record in halves)


def test_verification_distinguishes_bfloat16_from_wrong_results():
    model = network()
    loaded = load_model(model)
    coarse, fine = (verifier_of(loaded, level) for level in (BFLOAT16, DEFAULT))
    truth = run_onnxruntime(model, fine.inputs["x"])
    noise = np.random.default_rng(0).uniform(-1, 1, truth.shape).astype(np.float32)
    for size, accepted in ((2.0**-9, True), (2.0**-4, False)):
        judged = coarse.judge({"y": truth * (1 + size * noise)})
        assert judged.is_accepted == judged.kept == accepted
    assert not fine.judge({"y": truth * (1 + 2.0**-9 * noise)}).is_accepted


def test_code_for_other_cpus_has_their_instruction(tmp_path):
    path = tmp_path / "zen4.so"
    with neocpu.compile(network(), target="llvm -mcpu=znver4", precision="bf16") as compiled:
        compiled.export(path)
    dump = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True)
    assert "vdpbf16ps" in dump.stdout
    if "avx512bf16" not in host_target().features:
        with pytest.raises(TargetError, match="avx512"):
            neocpu.load(path)


def perceptron(rows, k, hidden, *, activation="Gelu", residual=True):
    """Return two dense layers with the operators between and after them."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.normal(size=(k, hidden)) / k**0.5,
        "b": rng.normal(size=hidden),
        "v": rng.normal(size=(hidden, k)) / hidden**0.5,
    }
    nodes = [
        ("MatMul", ["x", "w"], "product"),
        ("Add", ["product", "b"], "sum"),
        (activation, ["sum"], "hidden"),
        ("MatMul", ["hidden", "v"], "y" if not residual else "back"),
    ]
    if residual:
        nodes.append(("Add", ["back", "x"], "y"))
    value = onnx.helper.make_tensor_value_info
    shape, kind = [*rows, k], onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, reads, [made]) for op, reads, made in nodes],
        "perceptron",
        [value("x", kind, shape)],
        [value("y", kind, shape)],
        [onnx.numpy_helper.from_array(a.astype("float32"), name) for name, a in arrays.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 20)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


AWKWARD_ROWS = [((5,), 32, 64), ((197,), 96, 384), ((2, 49), 64, 102), ((3, 7, 11), 50, 33)]


@needs.instruction_set("avx512bf16")
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("activation", ["Gelu", "Relu", "Tanh"])
@pytest.mark.parametrize(("rows", "k", "hidden"), AWKWARD_ROWS)
@needs.one_in(3)
def test_dense_layers_err_as_bfloat16_does(rows, k, hidden, activation, residual):
    """This holds for any rows and columns: partial vectors and odd depths, too."""
    model = perceptron(rows, k, hidden, activation=activation, residual=residual)
    x = np.random.default_rng(1).normal(size=(*rows, k)).astype("float32")
    with neocpu.compile(model, precision="bf16", threads=2) as compiled:
        found, layers = compiled.module()(x), of_kind(compiled.plan, "dense")
    expected = run_onnxruntime(model, x)
    assert np.linalg.norm(found - expected) <= 2.0**-7 * np.linalg.norm(expected)
    if not needs.HAS_TILES:  # with them, small layers are as fast in float32
        even = [size % 2 == 0 for size in (k, hidden)]
        assert [op.precision == "bf16" for op in layers] == even


def test_a_dense_layer_stores_bfloat16_that_only_such_layers_read():
    with neocpu.compile(
        perceptron((196,), 192, 768), precision="bf16", target="llvm -mcpu=znver4", verify=False
    ) as compiled:
        kept, made = of_kind(compiled.plan, "dense")
    assert kept.workload.endswith("float32>bfloat16")
    assert made.workload.endswith("float32>float32")


def test_dense_layers_stay_in_float32_where_bfloat16_is_slower():
    """A CPU without bfloat16 instructions saves only memory traffic of weights."""
    with neocpu.compile(
        perceptron((196,), 192, 768), precision="bf16", target="llvm -mcpu=haswell", verify=False
    ) as compiled:
        assert {op.precision for op in of_kind(compiled.plan, "dense")} == {"fp32"}
