"""The rewritten network computes what the original did, at every level."""

import needs
import numpy as np
import pytest
import relax_modules
import tvm
from networks import HOST, NETWORKS, build, cost_model, executable, run

from neocpu.building.pipeline import Dump, lower
from neocpu.lowering.apply_plan import apply_plan
from neocpu.planning.extract import extract
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.schedules.vocabulary.layout import NCHW


def rewrite(name, opt):
    body, shapes = NETWORKS[name]
    mod = build(body, *shapes)
    costs = cost_model()
    return mod, apply_plan(mod, plan_layouts(extract(mod), costs, opt), costs), shapes


@pytest.mark.parametrize("opt", OptLevel)
@pytest.mark.parametrize("name", NETWORKS)
@needs.one_in(3)
def test_same_results_at_every_level(name, opt):
    mod, rewritten, shapes = rewrite(name, opt)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    expected = relax_modules.run(mod, *inputs)
    built = executable(lower(rewritten.mod, HOST, Dump()))
    actual = run(built, *inputs, *rewritten.weights)
    for want, got in zip(expected, actual, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=5e-4 if needs.HAS_TILES else 1e-4)


def test_weights_become_trailing_parameters():
    _, rewritten, shapes = rewrite("classifier", OptLevel.GLOBAL)
    main = rewritten.mod["main"]
    assert int(main.attrs["num_input"]) == len(shapes)
    assert len(main.params) == len(shapes) + len(rewritten.weights)
    for param, array in zip(main.params[1:], rewritten.weights, strict=True):
        assert tuple(int(d) for d in param.ty.shape) == array.shape


def test_conv_layout_returns_to_nchw_around_each_convolution():
    _, rewritten, _ = rewrite("residual", OptLevel.CONV_LAYOUT)
    assert {t.destination.layout == NCHW for t in rewritten.transforms} == {True, False}
    _, best, _ = rewrite("residual", OptLevel.GLOBAL)
    assert len(best.transforms) < len(rewritten.transforms)


def test_a_shared_tensor_is_transformed_once():
    _, rewritten, _ = rewrite("inception", OptLevel.GLOBAL)
    keys = [(t.source, t.destination, t.shape) for t in rewritten.transforms]
    assert len(set(keys)) == len(keys)


def test_equal_convolutions_share_a_kernel():
    def body(net, x):
        return net.conv(net.conv(x, 12), 12)

    mod = build(body, (1, 12, 8, 8))
    costs = cost_model()
    plan = plan_layouts(extract(mod), costs, OptLevel.NCHW)
    rewritten = apply_plan(mod, plan, costs).mod
    kernels = [f for f in rewritten.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert len(kernels) == 1
