"""Verification accepts right outputs, and reports the errors of wrong ones."""

import numpy as np
import pytest
from conv_workloads import conv_workload

import neocpu
from neocpu.compilation.network_tuning import search_space
from neocpu.foundation.errors import AccuracyError
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.plan.outcome import Promise
from neocpu.planning.choice import Measured
from neocpu.planning.costs import CostModel
from neocpu.planning.optimisation_levels import OptLevel, operator_choices, plan_layouts
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.accuracy import DEFAULT, SHORT_SUMS, STRICT
from neocpu.schedules.vocabulary.scheme import DirectScheme, WinogradScheme
from neocpu.schedules.vocabulary.target_parsing import host_target
from neocpu.verification.reference.evaluator import Noise
from neocpu.verification.reference.runner import run_reference
from neocpu.verification.reference.verification import Verifier
from tests.neocpu.frontend.onnx_models import graph_model, onnx_model

HOST = host_target()
LONG = conv_workload(1, 512, 14, 14, 512, (3, 3), padding=(1, 1, 1, 1))


def model(nodes, shape=(64,)):
    """Return a model from ``x`` to ``y``."""
    return onnx_model(nodes, {"x": shape}, {"y": shape})


def sums_of_products(constants, nodes):
    """Return a model whose nodes make ``y`` of ``sums``, those of ``x`` and the weights."""
    rows, columns = constants["weights"].shape
    return onnx_model(
        f"sums = MatMul(x, weights) {nodes}", {"x": [1, rows]}, {"y": [1, columns]}, constants
    )


def verify(model, inputs, actual, level):
    """Return how a run compares with ``model``; raise an error if it is refused."""
    verifier = Verifier(model, inputs, level)
    verdict = verifier.judge(actual)
    if not verdict.kept:
        raise AccuracyError(verifier.reason(verdict))
    return verdict.found


SINE = model("y = Sin(x)")
X = {"x": np.linspace(1, 3, 64, dtype="float32")}


def erring(error):
    """Return the sine of `X`, too large by ``error`` of each value."""
    return {"y": (np.sin(X["x"].astype(np.float64)) * (1 + error)).astype("float32")}


def test_each_level_has_its_bound():
    assert verify(SINE, X, erring(0), STRICT).norm_error < 1e-7
    found = verify(SINE, X, erring(2e-5), DEFAULT)
    assert found.norm_error == pytest.approx(2e-5, rel=0.01)
    with pytest.raises(AccuracyError, match=r"2e-05 of its norm.*5e-06 of accuracy='strict'"):
        verify(SINE, X, erring(2e-5), STRICT)
    words = r"of its norm.*0\.0001 of accuracy='default'.*please report what 'neocpu reduce'"
    with pytest.raises(AccuracyError, match=words):
        verify(SINE, X, erring(2e-4), DEFAULT)


def test_one_wrong_element_is_found_whatever_the_norm():
    sine = model("y = Sin(x)", shape=(4096,))
    x = {"x": np.linspace(1, 3, 4096, dtype="float32")}
    right = np.sin(x["x"])
    assert verify(sine, x, {"y": right}, DEFAULT).ok
    right[-1] *= 1.01  # a small one: the norm hardly changes
    with pytest.raises(AccuracyError, match="output 'y' differs from the reference by"):
        verify(sine, x, {"y": right}, DEFAULT)


def test_the_references_own_rounding_does_not_count():
    """Float32 loses the whole difference, float64 none of it."""
    text = "(float[64] x) => (float[64] y) { sum = Add(x, c) y = Sub(sum, c) }"
    cancelling = graph_model(text, c=np.float32(1e4))
    exact = {"y": X["x"]}
    assert verify(cancelling, X, exact, STRICT).norm_error < 1e-12
    with pytest.raises(AccuracyError, match="numpy in float32 by"):
        verify(cancelling, X, run_reference(cancelling, X), STRICT)


def test_overflow_of_float32_is_the_models():
    """``exp(60)`` squared is infinite only in float32, and its reciprocal is zero."""
    square = graph_model("(float[64] x) => (float[64] y) { e = Exp(x) y = Mul(e, e) }")
    x = {"x": np.full(64, 60, "float32")}
    assert verify(square, x, {"y": np.full(64, np.inf, "float32")}, DEFAULT).ok
    with pytest.raises(AccuracyError):
        verify(square, x, {"y": np.ones(64, "float32")}, DEFAULT)


def test_outputs_below_float32s_range_may_be_zero():
    """Float64 can represent ``exp(-100)``, and float32 cannot."""
    text = "(float[64] x) => (float[64] y) { product = Mul(x, factor) y = Exp(product) }"
    tiny = graph_model(text, factor=np.float32(-100))
    assert verify(tiny, X, {"y": np.zeros(64, "float32")}, STRICT).norm_error == 0
    with pytest.raises(AccuracyError):
        verify(tiny, X, {"y": np.full(64, 1e-30, "float32")}, DEFAULT)


def test_a_decision_that_rounding_takes_either_way_is_right_either_way():
    """Half of the sums are zero up to rounding, and the next layer takes their sign."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 256)).astype("float32")
    weights = rng.standard_normal((256, 64))
    direction = x[0].astype(np.float64) / np.linalg.norm(x)
    weights[:, ::2] -= np.outer(direction, direction @ weights[:, ::2])
    constants = {"weights": weights.astype("float32"), "steep": np.float32(1e12)}
    steep = sums_of_products(constants, "steeper = Mul(sums, steep) y = Sigmoid(steeper)")
    verifier = Verifier(steep, {"x": x}, DEFAULT)
    truth = run_reference(steep, {"x": x}, double=True)["y"]
    other = truth.astype("float32")
    other[0, :8:2] = 1 - other[0, :8:2]
    verdict = verifier.judge({"y": other})
    assert not verdict.kept
    assert verdict.is_accepted
    assert verdict.float32_error > DEFAULT.bound


def test_random_rounding_changes_floats_and_not_counts():
    text = "{ sine = Sin(x) whole = Round(x) y = Add(sine, whole) }"
    wide = graph_model(f"(float[64] x) => (float[64] y, float[64] whole) {text}")
    first, second = (run_reference(wide, X, noise=Noise(seed, ulps=4)) for seed in range(2))
    plain = run_reference(wide, X)
    np.testing.assert_array_equal(first["whole"], plain["whole"])
    for one, other in ((first, plain), (second, plain), (first, second)):
        assert 1e-8 < np.abs(one["y"] - other["y"]).max() < 1e-5


def test_rounding_at_random_moves_a_sum_near_zero_as_much_as_those_around_it():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 256)).astype("float32")
    weights = rng.standard_normal((256, 64)).astype("float32")
    weights[128:, 5], x[0, 128:] = -weights[:128, 5] * np.float32(1 + 1e-6), x[0, :128]
    product = sums_of_products({"weights": weights}, "y = Identity(sums)")
    plain = run_reference(product, {"x": x})["y"]
    assert 0 < abs(plain[0, 5]) < 1e-4
    moves = np.array(
        [
            run_reference(product, {"x": x}, noise=Noise(seed, ulps=0.5))["y"] - plain
            for seed in range(20)
        ]
    )
    largest = np.abs(moves).max(axis=0)[0]
    assert largest[5] > 0.5 * np.median(largest)
    assert largest.max() < 1e-7 * np.abs(plain).max()


def test_rounding_at_random_moves_what_a_mean_was_subtracted_from_as_those_around_it():
    values = np.random.default_rng(0).standard_normal((2, 64)).astype("float32")
    values[0, 5] = 1e-9
    moved = Noise(0, ulps=0.5).moved(values, "InstanceNormalization")[0, 5] - values[0, 5]
    assert abs(moved) > 1e-10
    assert Noise(0, ulps=0.5).moved(values, "Relu")[0, 5] == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize("seed", [10, 16, 17, 24])
def test_a_sum_beside_a_pole_may_err_as_float32_does(seed):
    """Numpy's error is so small there by chance that no other engine stays within a multiple."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, 128)).astype("float32")
    weights = rng.standard_normal((128, 4096)).astype("float32")
    poles = sums_of_products({"weights": weights}, "y = Tan(sums)")
    sums = np.zeros((1, 4096), "float32")
    for product in x[0][:, None] * weights:  # one by one, as a kernel adds them
        sums += product
    verdict = Verifier(poles, {"x": x}, DEFAULT).judge({"y": np.tan(sums)})
    assert verdict.is_accepted


@pytest.mark.parametrize(("size", "accepted"), [(1.2e38, True), (1e36, False)])
def test_a_part_of_a_sum_may_overflow_where_sums_are_nearly_that_large(size, accepted):
    """A partial sum overflows in one order of additions, and not in numpy's."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 256)).astype("float32")
    weights = (rng.standard_normal((256, 64)) * size / 16).astype("float32")
    product = sums_of_products({"weights": weights}, "y = Identity(sums)")
    actual = run_reference(product, {"x": x})["y"]
    smallest = np.argmin(np.abs(actual))
    assert np.isfinite(actual[0, smallest])
    actual[0, smallest] = np.inf
    assert Verifier(product, {"x": x}, DEFAULT).judge({"y": actual}).is_accepted == accepted


def test_the_reference_computes_in_float64_throughout():
    text = "{ cast = Cast<to = 1>(x) product = Mul(cast, third) y = Softmax<axis = 0>(product) }"
    net = graph_model(f"(float[64] x) => (float[64] y) {text}", third=np.float32(1 / 3))
    wide = run_reference(net, X, double=True)["y"]
    product = np.exp(X["x"].astype(np.float64) * np.float32(1 / 3))
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, product / product.sum(), rtol=1e-14)
    assert run_reference(net, X)["y"].dtype == np.float32


def measured(workload):
    """Return measurements of every scheme; Winograd's is by far the fastest."""
    return Measured(
        {
            scheme: 1e-6 if isinstance(scheme, WinogradScheme) else 1e-3
            for scheme in registry.schemes(workload, HOST)
        }
    )


def test_records_do_not_bring_back_what_strict_excludes():
    strict = CostModel(
        target=HOST, threads=1, measured=measured, admission=SHORT_SUMS
    ).conv_choices(LONG)
    assert {type(choice.scheme) for choice in strict} == {DirectScheme}
    assert any(choice.scheme.sum_chunks for choice in strict)
    default = CostModel(target=HOST, threads=1, measured=measured).conv_choices(LONG)
    assert isinstance(default[0].scheme, WinogradScheme)


def test_requested_algorithms_give_way_to_accuracy():
    only = frozenset({WinogradScheme.template})
    choices = CostModel(
        target=HOST, threads=1, measured=measured, templates=only, admission=SHORT_SUMS
    ).conv_choices(LONG)
    assert not any(isinstance(choice.scheme, WinogradScheme) for choice in choices)


def test_strict_tuning_measures_only_allowed_schemes():
    every = search_space(HOST, 1).schemes(LONG)
    strict = search_space(HOST, 1, SHORT_SUMS).schemes(LONG)
    assert set(strict) < set(every)
    assert not any(isinstance(scheme, WinogradScheme) for scheme in strict)


def network():
    net = NetworkBuilder("net", (1, 64, 28, 28), seed=0)
    x = net.relu(net.conv(net.input, "conv1", 64, 3, padding=1), "relu1")
    return net.finish(net.classifier(net.conv(x, "conv2", 32, 3, padding=1), "fc", 10))


@pytest.mark.parametrize("opt", list(OptLevel))
def test_strict_plans_hold_no_excluded_scheme(opt):
    from neocpu.compilation.read_model import read_network

    found = read_network(network())
    costs = CostModel(target=HOST, threads=1, measured=measured, admission=SHORT_SUMS)
    plan = plan_layouts(found, costs, opt)
    schemes = [choice.scheme for choice in plan.choices if choice.scheme is not None]
    assert len(schemes) == 2
    assert not any(isinstance(scheme, WinogradScheme) for scheme in schemes)
    assert all(
        not isinstance(choice.scheme, WinogradScheme)
        for choices in operator_choices(found, costs)
        for choice in choices
    )


@pytest.mark.parametrize("level", [DEFAULT, STRICT])
def test_the_artifact_says_its_level(level, tmp_path):
    with neocpu.compile(network(), threads=1, accuracy=level.name) as compiled:
        compiled.export(tmp_path / "net.so")
        assert 0 < compiled.verification.norm_error < level.bound
    with neocpu.load(tmp_path / "net.so") as module:
        plan = module.metadata.plan
    assert plan.accuracy == Promise(name=level.name, bound=level.bound)
