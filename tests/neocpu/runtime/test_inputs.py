"""Inputs of every kind: read in place if possible, else copied once and reported."""

import array
import logging
import mmap

import numpy as np
import pytest
from float_models import float_model
from onnx import helper

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.aligned_memory import address_of, aligned_empty
from neocpu.runtime.arguments import check_kind
from neocpu.runtime.module import load


@pytest.fixture
def copies(caplog):
    """The messages about copied inputs."""
    caplog.set_level(logging.DEBUG, logger="neocpu")
    return lambda: [record.getMessage() for record in caplog.records]


def aligned(x):
    result = aligned_empty(x.shape, x.dtype)
    result[...] = x
    return result


def misaligned(x):
    raw = aligned_empty(x.size + 1, x.dtype)
    raw[1:] = x.ravel()
    return raw[1:].reshape(x.shape)


def read_only(x):
    x = aligned(x)
    x.flags.writeable = False
    return x


class Exporter:
    """An array of another library, which has DLPack only."""

    def __init__(self, x, device=(1, 0)):
        self.x = x
        self.device = device

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize(
    "form",
    [aligned, read_only, lambda x: Exporter(aligned(x)), lambda x: memoryview(aligned(x))],
    ids=["array", "read-only", "DLPack", "buffer"],
)
def test_contiguous_aligned_inputs_are_not_copied(two_way, two_way_module, copies, form):
    image, mask = two_way.inputs()
    outputs = two_way_module([form(image), form(mask)])
    assert copies() == []
    for output, expected in zip(outputs, two_way_module([misaligned(image), mask]), strict=True):
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (misaligned, "not aligned to 64 bytes"),
        (lambda x: aligned(np.repeat(x, 2, axis=-1))[..., ::2], "not C-contiguous"),
        (lambda x: aligned(x[..., ::-1])[..., ::-1], "not C-contiguous"),
        (np.asfortranarray, "not C-contiguous"),
        (lambda x: aligned(x.astype(">f4")), "of the other byte order"),
        (lambda x: Exporter(misaligned(x)), "not aligned to 64 bytes"),
        (lambda x: array.array("f", x.ravel()), None),
    ],
)
def test_others_are_copied_once_and_said(two_way, two_way_module, copies, form, reason):
    image, mask = two_way.inputs()
    if reason is None:  # a buffer of one dimension has the wrong shape
        with pytest.raises(UsageError, match="expected float32"):
            two_way_module([form(image), mask])
        return
    disguised = form(image)
    for _ in range(2):
        outputs = two_way_module([disguised, aligned(mask)])
    assert copies() == [f"inputs copied before the run: 'image' ({reason})"] * 2
    for output, expected in zip(outputs, two_way.reference(image, mask), strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_a_run_says_all_its_copies_in_one_line(two_way, two_way_module, copies):
    image, mask = two_way.inputs()
    two_way_module([misaligned(image), misaligned(mask)])
    (line,) = copies()
    assert line.count("not aligned") == 2


def test_other_libraries_device_memory_is_refused(two_way, two_way_module):
    image, mask = two_way.inputs()
    with pytest.raises(UsageError) as caught:
        two_way_module([Exporter(image, device=(2, 0)), mask])
    assert "input 'image' does not lie in the CPU's memory (DLPack device type 2)" in str(
        caught.value
    )


def test_an_export_that_fails_is_a_usage_error(two_way, two_way_module):
    class Failing(Exporter):
        def __dlpack__(self, **options):
            raise BufferError("requires grad:\nuse tensor.detach()")

    image, mask = two_way.inputs()
    with pytest.raises(UsageError, match=r"input 'image' is not an array: requires grad: use"):
        two_way_module([Failing(image), mask])


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((2, 3, 8, 6), bool),
        np.full((2, 3, 8, 6), "x"),
        np.full((2, 3, 8, 6), None),
        np.zeros((2, 3, 8, 6), "float32,int32"),
        np.zeros((2, 3, 8, 6), "M8[s]"),
        "text",
        None,
        object(),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(two_way, two_way_module, wrong):
    with pytest.raises(UsageError, match="input 'image': expected float32") as caught:
        two_way_module([wrong, two_way.inputs()[1]])
    assert isinstance(wrong, np.ndarray) or "astype" not in str(caught.value)


@pytest.mark.parametrize("shape", [(), (0, 3), 7, (4, 5, 6)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8"])
def test_aligned_empty(shape, dtype):
    made = neocpu.aligned_empty(shape, dtype)
    assert made.shape == np.empty(shape).shape
    assert made.dtype == dtype
    assert address_of(made) % 128 == 0
    assert made.flags.c_contiguous
    assert made.flags.writeable


@pytest.fixture(scope="module")
def fragment(tmp_path_factory):
    """A network in which kernels of every kind read its input first: convolutions and others."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(16, 8, 3, 3)).astype("f4"),
        "p": rng.normal(size=(16, 8, 1, 1)).astype("f4"),
        "d": rng.normal(size=(8, 1, 3, 3)).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["x", "p"], ["b"]),
        helper.make_node("Conv", ["x", "d"], ["c"], pads=[1] * 4, group=8),
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Add", ["c", "r"], ["more"]),
        helper.make_node("MaxPool", ["x"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["x"], ["flat"]),
    ]
    outputs = {"sum": (1, 16, 12, 12), "more": (1, 8, 12, 12), "pool": (1, 8, 6, 6)}
    outputs["flat"] = (1, 8 * 144)
    model = float_model("fragment", nodes, {"x": (1, 8, 12, 12)}, outputs, weights)
    path = tmp_path_factory.mktemp("fragment") / "fragment.so"
    neocpu.compile(model, verify=False).export(path)
    return path


def test_kernels_never_write_to_an_input(fragment, tmp_path):
    """It lies on read-only pages: a store would end the process."""
    x = np.random.default_rng(1).normal(size=(1, 8, 12, 12)).astype("f4")
    file = tmp_path / "input"
    file.write_bytes(x.tobytes())
    with open(file, "rb") as opened, load(fragment, threads=2) as module:
        pages = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        given = np.frombuffer(pages, "f4").reshape(x.shape)
        outputs = module(given)
        for one, other in zip(outputs, module(x.copy()), strict=True):
            np.testing.assert_array_equal(one, other)
        assert not any(np.may_share_memory(one, given) for one in outputs)


def test_outputs_that_are_the_input_survive_overlapping_out(fragment):
    x = np.random.default_rng(2).normal(size=(1, 8, 12, 12)).astype("f4")
    with load(fragment, threads=2) as module:
        expected = module(x)
        given = aligned(x)
        out = [np.empty(one.shape, one.dtype) for one in expected]
        out[1] = given  # an output before the last one, which is the input as it is
        results = module(given, out=out)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, value)
    assert results[1] is given


@pytest.mark.parametrize("shape", [(1, 3, 8, 7), (1, 3, 8), (2, 3, 8, 8), (1, 3, 8, 8, 1), ()])
def test_no_other_shape_will_do(shape):
    spec = TensorSpec("image", "float32", (1, 3, 8, 8))
    check_kind(spec, np.dtype(">f4"), (1, 3, 8, 8))
    with pytest.raises(UsageError, match=r"expected float32\[1,3,8,8\], got float32"):
        check_kind(spec, np.dtype("f4"), shape)
