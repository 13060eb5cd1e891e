"""Kernels with their tasks in any order: equal calls give equal bits.

A pool does tasks in whatever order threads come by, which a test on few CPUs hardly ever sees: two
tasks that write the same element, or one that reads what another writes, pass as long as the later
one is done later.
"""

import ctypes
from pathlib import Path

import numpy as np
import pytest

import neocpu
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.runtime import binding
from neocpu.runtime.module import load
from tests import needs
from tests.neocpu import quantised_models
from tests.neocpu.lowering import test_launches
from tests.neocpu.recurrent_layers import layer
from wheels.backend import CORE, compile_core

known_machine = test_launches.known_machine

ORDERS = (0, 1, 2, 3)
"""Tasks in order, backwards, and shuffled."""
WRAPPED = ("nc_backend_launch", "nc_pool_expect", "nc_pool_call_batch")

NETWORKS = {
    "resnet18": (2, 3, 80, 72),
    "shufflenet_v2_x1_0": (1, 3, 96, 96),
    "efficientnet_b0": (1, 3, 96, 96),
    "unet": (1, 3, 48, 80),
}


@pytest.fixture(scope="module")
def orderly(tmp_path_factory):
    """Use a runtime that does tasks in the order of the fixture's value, a number."""
    path = tmp_path_factory.mktemp("runtime") / "libneocpu.so"
    source = Path(__file__).with_name("task_orders.c")
    options = (f"-iquote{CORE / 'src'}", *(f"-Wl,--wrap={name}" for name in WRAPPED))
    compile_core(path, ["cc", *options, str(source)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "LIBRARY", path)
        binding.library.cache_clear()
        yield ctypes.c_uint.in_dll(ctypes.CDLL(path), "task_order")
    binding.library.cache_clear()


def assert_same_in_any_order(compiled, path, orderly):
    """Run an artifact with its tasks in several orders, and compare the bits of the outputs."""
    compiled.export(path)
    with load(path) as module:
        data = random_inputs(module.metadata.inputs, seed=5)
        results = []
        for order in ORDERS:
            orderly.value = order
            results.append(module.run(data))
    for other in results[1:]:
        for name, value in results[0].items():
            np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("threads", [2, 64])
@pytest.mark.parametrize("network", needs.repeated(NETWORKS, {"efficientnet_b0", "unet"}))
def test_networks(network, threads, orderly, tmp_path):
    compiled = neocpu.compile(
        network, shapes={"input": NETWORKS[network]}, threads=threads, verify=False
    )
    assert_same_in_any_order(compiled, tmp_path / "model.so", orderly)


@pytest.mark.parametrize("threads", [2, 64])
@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
def test_recurrent_layers(operator, threads, orderly, tmp_path):
    model, _ = layer(operator, batch=5, hidden=37, direction="bidirectional")
    compiled = neocpu.compile(model, threads=threads, verify=False)
    assert_same_in_any_order(compiled, tmp_path / "model.so", orderly)


@pytest.mark.parametrize("threads", [2, 64])
@pytest.mark.parametrize("build", [quantised_models.network, quantised_models.network_in_groups])
def test_quantised_networks(build, threads, orderly, tmp_path):
    model = quantised_models.quantised(build())
    compiled = neocpu.compile(model, threads=threads, verify=False)
    assert_same_in_any_order(compiled, tmp_path / "model.so", orderly)


@pytest.mark.parametrize("network", test_launches.NETWORKS)
def test_calls_that_are_launched_jointly(network, orderly, tmp_path):
    options = {"threads": 64, "verify": False, "algorithms": test_launches.ALGORITHMS}
    compiled = neocpu.compile(test_launches.NETWORKS[network](), **options)
    assert compiled.header.launches
    assert_same_in_any_order(compiled, tmp_path / "model.so", orderly)


def blocks():
    """Convolutions over 13x21 and 7x11 pixels, some of them for each template.

    Tiles of two pixels and more overlap, and some round a pixel's sum by its place in the tile.
    """
    net = NetworkBuilder("blocks", (1, 48, 13, 21), seed=6)
    x = net.relu(net.conv(net.input, "wide", 128, 1), "wide.relu")
    x = net.relu(net.conv(x, "square", 64, 3, padding=1), "square.relu")
    x = net.relu(net.conv(x, "apart", 64, 3, padding=1, groups=64), "apart.relu")
    x = net.relu(net.conv(x, "groups", 64, 3, stride=2, padding=1, groups=4), "groups.relu")
    x = net.relu(net.conv(x, "tall", 256, 1), "tall.relu")
    return net.finish(net.conv(x, "flat", 128, 1))


@pytest.mark.parametrize("threads", [2, 8, 64])
@pytest.mark.parametrize(
    "algorithm", ["depthwise", "direct", "grouped", "nchw", "pointwise", "strassen", "winograd"]
)
def test_algorithms(algorithm, threads, orderly, tmp_path):
    options = {"threads": threads, "algorithms": [algorithm], "verify": False}
    compiled = neocpu.compile(blocks(), **options)
    schemes = [each.scheme for each in compiled.decided.ops]
    assert f"conv2d_{algorithm}" in {scheme.template for scheme in schemes if scheme is not None}
    assert_same_in_any_order(compiled, tmp_path / "model.so", orderly)
