"""Calls that choose sizes, through the library: the same results as numpy's at any size."""

import itertools
import random
import resource
import subprocess
import sys

import numpy as np
import pytest
from sized_artifact import FORM, HEIGHT, WIDTH, inputs_of, reference
from sized_calls import RefusedError, SizedModel

from neocpu.foundation.size_formulas import Size
from neocpu.runtime.artifact import read_header
from neocpu.runtime.guarding.guard import Guard
from neocpu.runtime.module import load

USAGE = 2
EVERY = list(
    itertools.product(
        range(HEIGHT.least, HEIGHT.most + 1, HEIGHT.step), range(WIDTH.least, WIDTH.most + 1)
    )
)


def check(model, height, width, seed=0):
    inputs = inputs_of(height, width, seed)
    expected = reference(*inputs)
    found = model.run((height, width), inputs, [each.shape for each in expected])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_size(sized, threads):
    with SizedModel(sized, threads) as model:
        for sizes in EVERY:
            check(model, *sizes)


def test_any_order_of_a_few_more_than_are_kept_ready(sized):
    rng = random.Random(0)
    few = rng.sample(EVERY, 20)
    with SizedModel(sized) as model, SizedModel(model) as stream:
        for seed in range(300):
            check(rng.choice((model, stream)), *rng.choice(few), seed)


def test_extents_are_those_of_the_header(sized):
    with SizedModel(sized) as model:
        for sizes in EVERY[::7]:
            shapes = FORM.shapes(sizes, (*FORM.inputs, *FORM.outputs))
            assert model.extents(sizes, 12) == [each for shape in shapes for each in shape]


def test_calls_without_sizes_are_of_the_typical_ones(sized):
    x = inputs_of(HEIGHT.typical, WIDTH.typical)
    with load(sized) as module:
        for one, other in zip(module(x), reference(*x), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert read_header(sized).sized == FORM


def test_jobs_run_in_order(sized):
    with SizedModel(sized, 2) as model:
        some = [(sizes, inputs_of(*sizes)) for sizes in EVERY[::50]]
        jobs = []
        for sizes, inputs in some:
            shapes = [each.shape for each in reference(*inputs)]
            jobs.append(model.submit(sizes, inputs, shapes))
        for (_, inputs), job in zip(some, jobs, strict=True):
            for one, other in zip(job.outputs(), reference(*inputs), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def message_of(size: Size, value: int) -> str:
    steps = f" in steps of {size.step}" if size.step > 1 else ""
    return (
        f"size '{size.name}' of model 'sized' is {value}, and it takes {size.least}..{size.most}"
        f"{steps}: the nearest is {size.nearest(value)}"
    )


@pytest.mark.parametrize("value", [-(2**63), -8, 0, 1, 3, 5, 41, 63, 65, 66, 1000, 2**63 - 1])
def test_heights_out_of_range(sized, value):
    with SizedModel(sized) as model:
        for ask in (lambda: model.extents((value, 5), 12), lambda: model.run((value, 5), [], [])):
            with pytest.raises(RefusedError) as caught:
                ask()
            assert (caught.value.status, str(caught.value)) == (USAGE, message_of(HEIGHT, value))
        check(model, 8, 5)


@pytest.mark.parametrize("value", [-1, 0, 1, 49, 2**40])
def test_widths_out_of_range(sized, value):
    with SizedModel(sized) as model, pytest.raises(RefusedError) as caught:
        model.submit((8, value), inputs_of(8, 5), [(1,), (2,)])
    assert (caught.value.status, str(caught.value)) == (USAGE, message_of(WIDTH, value))


def test_arrays_of_other_sizes(sized):
    with SizedModel(sized) as model:
        with pytest.raises(RefusedError, match="input 'x': expected 384 bytes of float32, got 320"):
            model.run((8, 6), inputs_of(8, 5), [(1, 2, 4, 3), (1, 2)])
        with pytest.raises(RefusedError, match="output 'pooled': 96 bytes of float32 need room"):
            model.run((8, 6), inputs_of(8, 6), [(1, 2, 4, 2), (1, 2)])
        job = model.submit((8, 6), inputs_of(8, 6), [(1, 2, 4, 2), (1, 2)])
        with pytest.raises(RefusedError, match="output 'pooled': 96 bytes of float32 need room"):
            job.outputs()
        with pytest.raises(RefusedError, match="the model has 2 inputs and 2 outputs, got 1 and 2"):
            model.run((8, 6), inputs_of(8, 6)[:1], [(1, 2, 4, 3), (1, 2)])


def test_models_of_fixed_shapes_have_no_sizes(linear):
    with SizedModel(linear.path) as model:
        for ask in (lambda: model.extents((1,), 4), lambda: model.run((1,), linear.inputs(), [])):
            with pytest.raises(RefusedError, match="'linear' has fixed shapes, and no sizes"):
                ask()


def test_outputs_that_overlap_inputs(sized):
    """An input that lies where an output goes is copied, in memory for the largest one."""
    sizes = (64, 48)
    x, m = inputs_of(*sizes)
    expected = reference(x, m)
    with SizedModel(sized) as model:
        for height, width in ((2, 2), sizes, (8, 5)):
            one, other = inputs_of(height, width)
            both = [np.ascontiguousarray(one), other]
            found = model.run((height, width), both, [each.shape for each in reference(*both)])
            np.testing.assert_allclose(found[1], reference(*both)[1], rtol=1e-4, atol=1e-4)
        found = model.run(sizes, [x, m], [each.shape for each in expected])
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)


def test_kernels_between_inaccessible_pages(sized):
    guard = Guard()
    calls = []
    checked = guard.check

    def check_and_count(kernel, arguments):
        calls.append(kernel.name.decode())
        checked(kernel, arguments)

    guard.check = check_and_count
    with SizedModel(sized) as model:
        guard.attach(model)
        for sizes in ((2, 2), (8, 5), (10, 7), (64, 48)):
            check(model, *sizes)
            guard.raise_finding()
    assert calls == ["scale", "twice", "pool", "total"] * 4


def test_memory_is_reserved_and_not_used(sized, tmp_path):
    """A model whose largest size takes more memory than there is, called for small ones."""
    from forgery import forge_header
    from sized_artifact import sized_header

    header = sized_header(sized)
    header["sizes"][0]["most"] = 1 << 24
    header["sizes"][1]["most"] = 1 << 10
    path = forge_header(sized, tmp_path / "a.so", header)
    with SizedModel(path) as model:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        check(model, 8, 5)
        check(model, 640, 480)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 100_000  # kB; the largest size takes 137 GB


CHILD = """
import resource, sys
sys.path[:0] = sys.argv[2:]
from sized_calls import SizedModel, RefusedError
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
try:
    SizedModel(sys.argv[1])
except RefusedError as error:
    print(error.status, error)
"""


def test_address_space_that_there_is_not(sized, tmp_path):
    from forgery import forge_header
    from sized_artifact import sized_header

    header = sized_header(sized)
    header["sizes"][0]["most"] = 1 << 24
    header["sizes"][1]["most"] = 1 << 10
    path = forge_header(sized, tmp_path / "a.so", header)
    command = [sys.executable, "-c", CHILD, str(path), *sys.path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1 out of memory: ")
