"""Modules of artifacts whose calls choose extents: calls of any size, their results and errors."""

import gc
import json
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import sized_artifact

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.runtime.guarding import GUARD_VARIABLE
from neocpu.runtime.shape_ranges import Range
from neocpu.runtime.sized_signatures import KEPT

SIZES = ((2, 2), (8, 5), (64, 48), (30, 7), (8, 5))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return sized_artifact.write(tmp_path_factory.mktemp("sized"))


@pytest.fixture
def module(path):
    with neocpu.load(path, 2) as loaded:
        yield loaded


def check(found, inputs):
    for one, expected in zip(found, sized_artifact.reference(*inputs), strict=True):
        np.testing.assert_allclose(one, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("size", SIZES)
def test_calls_of_any_size(module, size):
    inputs = sized_artifact.inputs_of(*size)
    check(module(*inputs), inputs)
    check(module(list(inputs)), inputs)
    check(module.submit(*inputs).result(30), inputs)
    named = dict(zip("xm", inputs, strict=True))
    check(module.run(named).values(), inputs)
    check(module.submit(named).result(30).values(), inputs)


def test_sizes_take_turns(module):
    for number, size in enumerate(SIZES * 3):
        inputs = sized_artifact.inputs_of(*size, number)
        check(module(*inputs), inputs)


def test_results_are_written_into_arrays_of_the_size(module):
    inputs = sized_artifact.inputs_of(10, 6)
    out = [np.empty((1, 2, 5, 3), "float32"), np.empty((1, 2), "float32")]
    assert module(*inputs, out=out)[0] is out[0]
    check(out, inputs)
    fortran = np.empty((1, 2, 5, 3), "float32", order="F")
    assert module(*inputs, out=[fortran, out[1]])[0] is fortran
    check([fortran, out[1]], inputs)
    with pytest.raises(UsageError, match=r"out= for 'pooled': expected float32\[1,2,5,3\], got"):
        module(*inputs, out=[np.empty((1, 2, 4, 2), "float32"), out[1]])


def test_inputs_may_have_any_strides(module):
    x, m = sized_artifact.inputs_of(12, 9)
    check(module(np.asfortranarray(x), m.astype(">f4")), (x, m))


def test_a_module_shows_ranges_and_typical_sizes(module):
    assert module.sizes == (sized_artifact.HEIGHT, sized_artifact.WIDTH)
    assert module.ranges == {
        "x": (1, 2, sized_artifact.HEIGHT, sized_artifact.WIDTH),
        "m": (1, Range(1, 32)),
    }
    assert module.shapes == ({"x": (1, 2, 8, 5), "m": (1, 4)},)
    assert [spec.shape for spec in module.outputs] == [(1, 2, 4, 2), (1, 2)]
    assert 10 in module.sizes[0]
    assert 11 not in module.sizes[0]
    assert "x: float32[1, 2, 2..64/2, 2..48]" in repr(module)


def test_modules_of_fixed_shapes_have_no_sizes(linear_module):
    assert linear_module.sizes == ()
    assert linear_module.ranges == linear_module.shapes[0]


@pytest.mark.parametrize(
    ("x", "m", "message"),
    [
        (
            (1, 2, 9, 5),
            (1, 4),
            r"'x': extent 2 is 9.*2\.\.64 in steps of 2.*is x\[1,2,10,5",
        ),
        ((1, 2, 8, 49), (1, 4), r"'x': extent 3 is 49, and the module takes 2\.\.48: the nearest"),
        ((1, 2, 8, 5), (1, 5), "'m': extent 1 is 5, and must be 4 because extent 2 of input 'x'"),
        ((2, 8, 5), (1, 4), r"expected float32\[1,2,2\.\.64/2,2\.\.48\].*batch axis is missing"),
        ((1, 8, 5, 2), (1, 4), r"it looks like NHWC"),
    ],
)
def test_other_shapes_are_refused(module, x, m, message):
    with pytest.raises(UsageError, match=message) as told:
        module(np.zeros(x, "float32"), np.zeros(m, "float32"))
    assert "\n" not in str(told.value)


def test_warmup_and_traces(module):
    module.warmup(1)
    inputs = sized_artifact.inputs_of(6, 4)
    module.start_trace()
    check(module(*inputs), inputs)
    timeline = module.stop_trace()
    assert {event.call for event in timeline.events} >= {0, 1, 2, 3}
    assert [call.kernel for call in timeline.calls] == ["scale", "twice", "pool", "total"]


def test_streams_run_different_sizes_at_once(path):
    with neocpu.load(path, 1, streams=2) as module:
        assert module.sizes == (sized_artifact.HEIGHT, sized_artifact.WIDTH)
        failures = []

        def work(seed):
            try:
                for number in range(30):
                    inputs = sized_artifact.inputs_of(2 + 2 * ((seed + number) % 30), 3 + seed)
                    check(module(*inputs), inputs)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures


def test_another_stream_shares_the_weights(module):
    pool = neocpu.ThreadPool(1)
    with module.stream(pool) as other:
        inputs = sized_artifact.inputs_of(20, 11)
        check(other(*inputs), inputs)
    check(module(*inputs), inputs)
    pool.close()


def test_signatures_of_met_sizes_are_bounded(module):
    for height in range(2, 65, 2):
        for width in (2, 3, 48):
            inputs = sized_artifact.inputs_of(height, width)
            check(module(*inputs), inputs)
    assert module._signatures.sized._kept.cache_info().currsize == KEPT


def test_a_closed_module_is_freed_and_tells_its_shapes(path):
    module = neocpu.load(path, 1)
    module(*sized_artifact.inputs_of(6, 4))
    handle = weakref.ref(module._calls.session._handle)
    gc.disable()
    try:
        module.close()
        assert handle() is None
    finally:
        gc.enable()
    assert module.ranges["x"][2] == sized_artifact.HEIGHT
    with pytest.raises(UsageError, match="is closed"):
        module(*sized_artifact.inputs_of(6, 4))
    with pytest.raises(TypeError):
        pickle.dumps(module)


GUARDED = """
import json, sys
import numpy as np, neocpu, sized_artifact
with neocpu.load(sys.argv[1], 2) as module:
    for size in json.loads(sys.argv[2]):
        inputs = sized_artifact.inputs_of(*size)
        for found, expected in zip(module(*inputs), sized_artifact.reference(*inputs)):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
"""


def test_guarded_runs(path, monkeypatch):
    monkeypatch.setenv(GUARD_VARIABLE, "1")
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    subprocess.run([sys.executable, "-c", GUARDED, path, json.dumps(SIZES)], check=True)
