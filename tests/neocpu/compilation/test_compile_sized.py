"""Artifacts for any height and width."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import onnx
import pytest
from sized_networks import gated_network, small_network, with_free_sizes

import neocpu
from neocpu.compilation import compile_sized
from neocpu.compilation.verify_sizes import checked_sizes
from neocpu.foundation.errors import AccuracyError, ArtifactError, UnsupportedError, UsageError
from neocpu.foundation.size_formulas import Entry, Size, Term
from neocpu.runtime.artifact import read_header
from neocpu.verification.reference.comparison import Comparison, Verdict
from tests.neocpu.quantised_models import run_onnxruntime

SHAPES = {"x": (1, 3, range(64, 261, 4), range(64, 261, 4))}
TYPICAL = {"x": (1, 3, 128, 160)}


def image(height, width):
    return np.random.default_rng(height + width).standard_normal((1, 3, height, width), np.float32)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """Return the path of an artifact for the sizes of `SHAPES`."""
    path = tmp_path_factory.mktemp("sized") / "any.so"
    with neocpu.compile(with_free_sizes(), shapes=SHAPES, typical=TYPICAL, threads=2) as compiled:
        assert compiled.verification is not None
        assert compiled.verification.norm_error <= 1e-4
        compiled.export(path)
    return path


def test_one_artifact_computes_all_sizes(artifact):
    with neocpu.load(artifact) as module:
        for size in ((64, 64), (260, 260), (128, 160), (76, 212), (100, 68), (64, 260)):
            x = image(*size)
            expected = run_onnxruntime(small_network(size), x)
            found = module(x)
            assert found.shape == expected.shape
            error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
            assert error <= 1e-4, size


def test_the_typical_size_is_computed_as_by_a_plan_for_it_alone(artifact):
    x = image(128, 160)
    with neocpu.load(artifact) as module:
        found = module(x)
    with neocpu.compile(small_network((128, 160)), threads=2) as fixed, fixed.module() as alone:
        np.testing.assert_allclose(found, alone(x), rtol=1e-4, atol=1e-4)


def test_loops_are_divided_as_the_size_of_a_call_asks(artifact):
    with neocpu.load(artifact, threads=2) as module:
        tasks = []
        for size in ((64, 64), (260, 260)):
            module(image(*size))
            module.start_trace()
            module(image(*size))
            events = module.stop_trace().events
            tasks.append(max(event.task for event in events) + 1)
    assert tasks[0] < tasks[1]
    assert tasks[1] > 2  # more than threads


def test_a_gate_over_one_pixel_is_computed_as_over_more():
    ranges = range(8, 129, 8)
    shapes, typical = {"x": (1, 3, ranges, ranges)}, {"x": (1, 3, 64, 80)}
    model = with_free_sizes(gated_network)
    with neocpu.compile(model, shapes=shapes, typical=typical, threads=2) as compiled:
        with compiled.module() as module:
            for size in ((8, 8), (8, 128), (128, 8), (16, 24), (64, 80), (72, 120), (128, 128)):
                x = image(*size)
                expected = run_onnxruntime(gated_network(size), x)
                np.testing.assert_allclose(module(x), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("channels", [(24, 4), (12, 96)])
def test_pixels_that_fill_no_tile_are_computed_once_more(channels):
    def model_of(height, width):
        read, made = channels
        rng = np.random.default_rng(0)
        weights = rng.standard_normal((made, read, 1, 1)).astype(np.float32)
        node = onnx.helper.make_node
        nodes = [node("Conv", ["x", "w"], ["z"]), node("Sigmoid", ["z"], ["y"])]
        value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            nodes,
            "pixels",
            [value("x", kind, (1, read, height, width))],
            [value("y", kind, (1, made, height, width))],
            [onnx.numpy_helper.from_array(weights, "w")],
        )
        opsets = [onnx.helper.make_opsetid("", 18)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)

    shapes = {"x": (1, channels[0], range(12, 61), range(12, 61))}
    typical = {"x": (1, channels[0], 40, 48)}
    model = model_of("h", "w")
    with neocpu.compile(model, shapes=shapes, typical=typical, threads=2) as compiled:
        with compiled.module() as module:
            for size in ((12, 12), (13, 17), (41, 59), (40, 48), (60, 60)):
                x = np.random.default_rng(1).standard_normal((1, channels[0], *size), np.float32)
                expected = run_onnxruntime(model_of(*size), x)
                np.testing.assert_allclose(module(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "nearest"),
    [((1, 3, 66, 64), "68,64"), ((1, 3, 32, 64), "64,64"), ((1, 3, 64, 999), "64,260")],
)
def test_other_sizes_are_refused_with_the_nearest(artifact, shape, nearest):
    with (
        neocpu.load(artifact) as module,
        pytest.raises(UsageError, match=rf"the nearest is x\[1,3,{nearest}\]"),
    ):
        module(np.zeros(shape, np.float32))


def test_its_header_has_the_ranges_and_the_places_at_any_size(artifact):
    with neocpu.load(artifact) as module:
        assert [(each.least, each.most, each.step) for each in module.sizes] == [(64, 260, 4)] * 2
    form = read_header(artifact).sized
    assert form is not None
    (least,) = form.integers((64, 64), [form.arena_bytes])
    (most,) = form.integers((260, 260), [form.arena_bytes])
    assert 0 < least < most


def test_a_kernel_that_steps_out_of_its_tensors_is_no_artifact(monkeypatch):
    header_of = compile_sized.sized_header

    def with_small_outputs(header, *rest):
        """Return a header whose pool has extents of one more row than its tensors."""
        made = header_of(header, *rest)
        sized = made.sized
        first, *others = sized.extents
        larger = tuple(
            Term(len(sized.sizes) + len(sized.entries), is_entry=True) if term.is_entry else term
            for term in first
        )
        entry = Entry("+", next(term for term in first if term.is_entry), Term(4))
        wrong = replace(sized, extents=(larger, *others), entries=(*sized.entries, entry))
        return replace(made, sized=wrong)

    monkeypatch.setattr(compile_sized, "sized_header", with_small_outputs)
    with pytest.raises((UnsupportedError, ArtifactError)):
        neocpu.compile(with_free_sizes(), shapes=SHAPES, typical=TYPICAL, threads=2).close()


def test_sizes_are_verified_at_the_ends_and_between():
    sizes = [Size(name=name, least=64, most=256, step=32, typical=128) for name in "hw"]
    found = checked_sizes(sizes)
    assert found[:3] == [(128, 128), (64, 64), (256, 256)]
    assert len(found) in (7, 8)  # random ones may be equal
    assert all(value in size for each in found for value, size in zip(each, sizes, strict=True))
    few = [Size(name="n", least=1, most=2, step=1, typical=1)]
    assert checked_sizes(few) == [(1,), (2,)]


def test_networks_that_change_with_their_size_name_the_reason():
    model = with_free_sizes()
    grid = np.zeros((1, 3, 64, 64), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(grid, "grid"))
    model.graph.node.insert(0, onnx.helper.make_node("Add", ["x", "grid"], ["z"]))
    model.graph.node[1].input[0] = "z"
    with pytest.raises(UsageError, match=r"Add 'z' cannot take 'x'.*it takes"):
        neocpu.compile(model, shapes=SHAPES, typical=TYPICAL).close()


def judging(monkeypatch, *verdicts):
    """Have artifacts get these verdicts, one after another."""
    told = ((verdict, "at size 64x64, bad") for verdict in verdicts)
    monkeypatch.setattr(compile_sized, "verify_sizes", lambda *_: next(told))


def erring(error, *, kept=False):
    found = Comparison(
        max_abs_error=error, max_rel_error=error, norm_error=error, worst_output="y", ok=kept
    )
    return Verdict(found=found, kept=kept, float32_error=1e-6)


def test_a_plan_that_errs_too_much_is_followed_by_a_stricter_one(monkeypatch, caplog):
    judging(monkeypatch, erring(0.5), erring(1e-6, kept=True))
    with (
        caplog.at_level(logging.WARNING, "neocpu"),
        neocpu.compile(with_free_sizes(), shapes=SHAPES, typical=TYPICAL, threads=2) as compiled,
    ):
        assert compiled.plan.missed
    assert "output 'y' was wrong by 0.5" in caplog.text
    assert "compiled again" in caplog.text


def test_a_model_that_all_plans_compute_wrong_is_refused(monkeypatch):
    judging(monkeypatch, erring(0.5), erring(0.5))
    with pytest.raises(AccuracyError, match=r"^at size 64x64, bad$"):
        neocpu.compile(with_free_sizes(), shapes=SHAPES, typical=TYPICAL, threads=2).close()


def test_the_value_of_an_input_has_no_range():
    model = with_free_sizes()
    model.graph.input.append(onnx.helper.make_tensor_value_info("gain", onnx.TensorProto.FLOAT, []))
    model.graph.node.append(
        onnx.helper.make_node("Mul", [model.graph.output[0].name, "gain"], ["z"])
    )
    model.graph.output[0].name = "z"
    with pytest.raises(UsageError, match=r"'gain': range\(5, 8\)}: no input has this extent"):
        neocpu.compile(model, shapes={**SHAPES, "gain": range(5, 8)}, typical=TYPICAL).close()
