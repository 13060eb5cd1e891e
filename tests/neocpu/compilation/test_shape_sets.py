"""Artifacts for a set of shapes: results, contents, descriptions and refusals."""

import gc
import json

import numpy as np
import psutil
import pytest

import neocpu
from neocpu.bench.engines.measured_model import find_model
from neocpu.building import shape_set
from neocpu.building.shape_set import SetMember, write_shape_set
from neocpu.building.weight_packing import PackingKernels
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.runtime.artifact import ArtifactFile, read_header
from neocpu.runtime.header import FORMAT, SET_FORMAT
from tests.neocpu.compilation.conftest import SHAPES, Network, network
from tests.neocpu.runtime.forgery import forge_header


def image(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def resident() -> int:
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize("streams", [1, 2])
def test_each_shape_has_its_plan(sized: Network, streams: int):
    with neocpu.load(sized.path, threads=1, streams=streams) as module:
        assert list(module.shapes) == SHAPES
        module.warmup(1)
        for _ in range(2):
            for number in (0, 3, 1, 2):
                x = image(SHAPES[number]["x"], number)
                y, mean = module(x)
                expected = sized.reference(x)
                np.testing.assert_allclose(y, expected[0], rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(mean, expected[1], rtol=1e-4, atol=1e-5)
                assert y.shape == module.signatures[number].outputs[0].shape
        odd = image((1, 3, 9, 8))[..., :7]  # not contiguous: it is staged
        named = module.run(
            {"x": odd},
            out={
                "y": (out := np.empty((1, 5, 9, 7), "float32")),
                "mean": np.empty((1, 13, 1, 1), "float32"),
            },
        )
        assert named["y"] is out
        np.testing.assert_array_equal(out, module(odd.copy())[0])
        assert np.array_equal(module.submit(x).result()[0], y)


def test_a_plan_computes_the_same_in_a_set_as_alone(sized: Network):
    x = image(SHAPES[0]["x"])
    with neocpu.load(sized.path, 1) as every, neocpu.load(sized.single, 1) as one:
        for mine, its in zip(every(x), one(x), strict=True):
            np.testing.assert_array_equal(mine, its)


def test_a_part_of_a_fat_file_may_be_a_set(sized: Network, tmp_path):
    settings = {"threads": 2, "only_databases": True, "verify": False}
    path = tmp_path / "fat.so"
    neocpu.compile_fat(sized.model, ("host",), path, shapes=SHAPES[:2], **settings)
    with neocpu.load(path, 1) as module:
        assert list(module.shapes) == SHAPES[:2]
        for count in (3, 4):
            x = image((count, 3, 9, 7))
            np.testing.assert_allclose(module(x)[0], sized.reference(x)[0], rtol=1e-4, atol=1e-4)


def test_weights_and_kernels_are_there_once(sized: Network):
    every, one = (ArtifactFile(path).variants[0] for path in (sized.path, sized.single))
    places = [weight for each in every.header.each for weight in each.weights]
    assert len(set(places)) < len(places)
    assert every.weight_bytes < 2 * one.weight_bytes
    called = [{kernel for kernel, _ in each.calls} for each in every.header.each]
    for each, kernels in zip(every.header.each, called, strict=True):
        named = {op.kernel for op in each.plan.ops if op.kernel}
        assert named <= kernels


def test_headers_know_their_set(sized: Network):
    header = read_header(sized.path)
    assert (header.format, read_header(sized.single).format) == (SET_FORMAT, FORMAT)
    assert [each.inputs[0].shape for each in header.each] == [each["x"] for each in SHAPES]
    assert header.of(SHAPES[2]).inputs[0].shape == (1, 3, 7, 9)
    assert type(header).from_json(json.loads(header.encode())) == header
    assert "x[3,3,9,7]" in str(header)
    # Sets are composed by the times of batches, which the header states.
    timed = [each.inputs[0].shape for each in header.each if each.call_seconds is not None]
    assert timed == [(1, 3, 9, 7), (3, 3, 9, 7)]
    with pytest.raises(UsageError, match=r"compiled for x\[1,3,9,7\]; x\[3,3,9,7\]"):
        header.of({"x": (5, 3, 9, 7)})


REFUSED = r"x\[2,3,16,5\]; got x\[5,3,9,8\]; the nearest is x\[3,3,9,7\]$"


def test_other_shapes_are_refused_with_the_set(sized: Network):
    with neocpu.load(sized.path, 1) as module:
        with pytest.raises(UsageError, match=REFUSED):
            module(image((5, 3, 9, 8)))
        with pytest.raises(UsageError, match="got dtype float64"):
            module(image((1, 3, 9, 7)).astype("float64"))
        out = [np.empty((1, 5, 9, 7), "float32"), np.empty((3, 13, 1, 1), "float32")]
        with pytest.raises(UsageError, match=r"expected float32\[3,5,9,7\]"):
            module(image((3, 3, 9, 7)), out=out)


def test_one_shape_of_a_set_is_benchmarked(sized: Network, tmp_path):
    settings = {"threads": 1, "databases": ()}
    asked = InputShapes(SHAPES[3])
    subject = find_model(str(sized.path), tmp_path, shapes=asked, **settings)
    assert subject.header.inputs[0].shape == SHAPES[3]["x"]
    with pytest.raises(UsageError, match="are for models"):
        find_model(str(sized.single), tmp_path, shapes=asked, **settings)


def test_memory_stays_flat(sized: Network):
    with neocpu.load(sized.path, 1) as module:
        images = [image(each["x"])[..., ::-1] for each in SHAPES]
        module.warmup(1)
        for x in images:
            module(x)
        gc.collect()
        before = resident()
        for _ in range(500):
            for x in images:
                module(x)
        assert resident() - before < 1 << 20


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([{"x": (1, 3, 9, 7)}, {"n": 1, "h": 9, "w": 7}], "inputs of the same shapes"),
        ([{"x": (1, 3, 9, 7)}, {"x": (0, 3, 9, 7)}], "dimensions must be at least 1, got 0"),
        ([{"n": 0, "h": 9, "w": 7}], r"shapes={'n': 0}: a dimension is a whole number, 1 or more"),
        ([{"n": 1.5, "h": 9, "w": 7}], r"shapes={'n': 1.5}: a dimension is a whole number"),
        (
            [{"n": 1, "x": (4, 3, 9, 7)}],
            r"shapes={'n': 1} and shapes={'x': \(4, 3, 9, 7\)} contradict",
        ),
        ([{"m": 1}], "no such input.*the named dimensions are 'h', 'n', 'w'"),
    ],
)
def test_signatures_that_do_not_fit(shapes, message):
    with pytest.raises(UsageError, match=message):
        neocpu.compile(network(), shapes=shapes)


def test_a_set_may_have_too_much_to_tell_or_to_hold(tmp_path, monkeypatch):
    options = {"threads": 2, "only_databases": True, "verify": False}
    with neocpu.compile(network(), shapes=SHAPES[0], **options) as part:
        member = SetMember(part.header, part.kernels, part.path)

        def alternatives() -> list[list[object]]:
            header = write_shape_set([member], tmp_path / "told.so", PackingKernels.compile)
            return [op.alternatives for op in header.plan.ops]

        assert any(alternatives())
        monkeypatch.setattr(shape_set, "MAX_HEADER", len(part.header.encode()) - 100)
        assert not any(alternatives())
        monkeypatch.setattr(shape_set, "MAX_HEADER", 1000)
        with pytest.raises(UsageError, match="need a header of more than"):
            alternatives()
        with pytest.raises(UsageError, match=r"^max_weights=1.0 kB .* of all 1 shapes together"):
            write_shape_set([member], tmp_path / "set.so", PackingKernels.compile, 1000)
    assert not (tmp_path / "set.so").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data.pop("plans"), "plans"),
        (lambda data: data["plans"].clear(), "plans"),
        (lambda data: data["plans"].append(data["plans"][0]), "plans"),
        (lambda data: data["plans"][1]["inputs"][0].update(name="z"), "plans"),
        (lambda data: data["plans"][1]["outputs"][0].update(name="z"), "plans"),
        (lambda data: data["plans"][2].pop("calls"), "calls"),
        (lambda data: data["plans"][3]["weights"][0].__setitem__(0, 1 << 30), "weights"),
        (lambda data: data["plans"].__setitem__(1, 7), "inputs"),
    ],
)
def test_headers_that_lie_are_refused(sized: Network, tmp_path, change, problem):
    data = read_header(sized.path).to_json()
    change(data)
    path = forge_header(sized.path, tmp_path / "forged.so", data)
    with pytest.raises(ArtifactError, match=rf"malformed header \({problem}\)"):
        neocpu.load(path)


def test_fields_of_the_artifact_within_a_plan_are_ignored(sized: Network, tmp_path):
    header = read_header(sized.path)
    data = header.to_json()
    data["plans"][0].update(name=7, versions=[], streams="many")
    data.update(inputs=3, calls=None)
    with neocpu.load(forge_header(sized.path, tmp_path / "forged.so", data)) as module:
        assert module.metadata == header
