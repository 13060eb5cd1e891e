"""Calls that are launched jointly, compiled for many threads and run on a few."""

import itertools

import numpy as np
import pytest

import neocpu
from neocpu.building import pipeline
from neocpu.foundation.machine.machines import MACHINES
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.lowering.memory import launching
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.timeline import seconds_of_calls
from neocpu.schedules.vocabulary.target_parsing import host_target

THREADS = 16


@pytest.fixture(scope="module", autouse=True)
def known_machine():
    """Give this CPU the rates of a known machine with many cores, and let small savings count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "WORTH", 0.0)
        patch.setattr(launching, "LEAST", 1e-9)
        patch.setattr(launching, "GROWTH", 2.0)
        patch.setattr(pipeline, "MACHINES", {host_target().mcpu: MACHINES["znver4"]})
        yield


def inception(batch=1):
    """Branches of one to three convolutions, and a pool, over a prime number of channels."""
    net = NetworkBuilder("inception", (batch, 37, 9, 9), seed=1)
    x = net.relu(net.conv(net.input, "stem", 64, 3, padding=1), "stem.relu")
    one = net.conv(x, "one", 32, 1)
    two = net.conv(net.conv(x, "two.1", 24, 1), "two.2", 32, 3, padding=1)
    three = net.conv(net.conv(x, "three.1", 24, 1), "three.2", 48, 3, padding=1)
    three = net.conv(three, "three.3", 48, 3, padding=1)
    pooled = net.conv(net.average_pool(x, "pool", 3, stride=1, padding=1), "pooled", 16, 1)
    y = net.concat([one, two, three, pooled], "joined")
    return net.finish(net.classifier(net.relu(y, "relu"), "fc", 10))


def expand():
    """SqueezeNet's pair of convolutions, and the reader of both."""
    net = NetworkBuilder("expand", (2, 48, 13, 13), seed=3)
    x = net.relu(net.conv(net.input, "squeeze", 16, 1), "s")
    one, three = net.conv(x, "one", 64, 1), net.conv(x, "three", 64, 3, padding=1)
    y = net.concat([net.relu(one, "r1"), net.relu(three, "r3")], "y")
    return net.finish(net.conv(y, "last", 16, 1))


def heads():
    """Two equal heads on each of three scales: equal kernels among those of a launch."""
    net = NetworkBuilder("heads", (1, 32, 16, 16), seed=4)
    x = net.relu(net.conv(net.input, "stem", 32, 3, padding=1), "r")
    ends = []
    for scale in range(3):
        for head in "ab":
            y = net.relu(net.conv(x, f"{head}{scale}.1", 32, 3, padding=1), f"{head}{scale}.r")
            y = net.conv(y, f"{head}{scale}.2", 5, 1)
            ends.append(net.flatten(y, f"{head}{scale}.flat"))
        x = net.max_pool(x, f"down{scale}", 2, stride=2)
    return net.finish(net.concat(ends, "all"))


# On some CPUs plain NCHW is faster for all of a network, and its kernels are not launched jointly.
ALGORITHMS = ("direct", "pointwise", "winograd")
NETWORKS = {each.__name__: each for each in (inception, expand, heads)}


@pytest.fixture(scope="module", params=NETWORKS)
def artifacts(request, tmp_path_factory):
    """An artifact with launches and one without, of the same kernels, and their headers."""
    folder = tmp_path_factory.mktemp("launches")
    model = NETWORKS[request.param]()
    headers, paths = [], []
    for launches in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not launches:
                patch.setattr(pipeline, "launch_jointly", lambda *_: None)
            with neocpu.compile(
                model, threads=THREADS, verify=launches, algorithms=ALGORITHMS
            ) as compiled:
                assert not launches or compiled.verification.ok
                headers.append(compiled.header)
                paths.append(folder / f"{launches}.so")
                compiled.export(paths[-1])
    return headers, paths


def test_joint_launches_need_bounded_memory(artifacts):
    (header, plain), _ = artifacts
    assert header.launches
    assert not plain.launches
    kernels = (sorted(kernel for kernel, _ in each.calls) for each in (header, plain))
    assert next(kernels) == next(kernels)
    assert header.arena_bytes <= 2 * plain.arena_bytes
    end = len(header.calls)
    for (first, count), (later, _) in itertools.pairwise([*header.launches, (end, 0)]):
        assert count > 1
        assert first + count <= later


def test_joint_launches_give_the_same_bits_on_any_number_of_threads(artifacts):
    (header, _), (path, plain) = artifacts
    feeds = [random_inputs(header.inputs, seed=seed) for seed in (0, 1)]
    with neocpu.load(plain, 1) as module:
        expected = [module.run(each) for each in feeds]
    for options in ({"threads": 1}, {"threads": 2}, {"threads": 5}, {"threads": 2, "streams": 2}):
        with neocpu.load(path, **options) as module:
            for _ in range(3):
                for each, right in zip(feeds, expected, strict=True):
                    for name, found in module.run(each).items():
                        np.testing.assert_array_equal(found, right[name], err_msg=str(options))


def test_a_trace_shares_a_launch_out(artifacts):
    (header, _), (path, _) = artifacts
    (first, count), *_ = header.launches
    with neocpu.load(path, 2) as module:
        module(list(random_inputs(header.inputs, seed=0).values()))
        module.start_trace()
        module(list(random_inputs(header.inputs, seed=0).values()))
        timeline = module.stop_trace()
    calls = {event.call: event for event in timeline.events if event.kind == "kernel"}
    assert sorted(calls) == [*range(len(header.calls))]
    together = [calls[place] for place in range(first, first + count)]
    assert len({event.begin for event in together}) == 1
    tasks = [event for event in timeline.events if event.kind == "task"]
    for task in tasks:
        call = calls[task.call]
        assert call.begin <= task.begin <= task.end <= call.end
    assert {task.call for task in tasks} >= {*range(first, first + count)}
    seconds = seconds_of_calls(timeline.events, len(timeline.calls))
    longest = max(event.seconds for event in together)
    assert sum(seconds[event.call][0] for event in together) == pytest.approx(longest)


def test_one_thread_launches_nothing():
    with neocpu.compile(inception(), threads=1, verify=False) as compiled:
        assert compiled.header.launches == ()
        assert "launches" not in compiled.header.to_json()


def test_a_set_of_shapes_has_the_launches_of_each():
    model = inception()
    shapes = [{model.graph.input[0].name: (batch, 37, 9, 9)} for batch in (1, 3)]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with neocpu.compile(model, threads=THREADS, shapes=shapes) as compiled:
        assert all(each.launches for each in compiled.header.each)
        again = ArtifactHeader.from_json(compiled.header.to_json())
        assert [each.launches for each in again.each] == [
            each.launches for each in compiled.header.each
        ]
