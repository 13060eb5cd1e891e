"""Columns of data sets become columns of results; the model runs as it was compiled."""

import io
import os
import pickle
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import neocpu
from neocpu import batch
from neocpu.batch import Predictor
from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import Picture, TensorSpec
from neocpu.runtime.signatures import Signature

Image = pytest.importorskip("PIL.Image")

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_batch" / "score.py"

PICTURE = TensorSpec("x", "uint8", (1, 6, 8, 3), picture=Picture("nhwc", "rgb", "stretch"))
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)


def file(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def objects(*elements):
    """Return a column of anything, as Ray's batches have it."""
    column = np.empty(len(elements), object)
    for row, element in enumerate(elements):
        column[row] = element
    return column


@pytest.fixture
def fake(monkeypatch):
    """Return a predictor that calls a function with these inputs and outputs."""

    def made(inputs, outputs, run, others=(), mixed=None, **options):
        plan = SimpleNamespace(rows_mixed=mixed, row_function="f")
        header = SimpleNamespace(each=[plan] * (1 + len(others)))
        signatures = [Signature(tuple(inputs), tuple(outputs)), *others]
        given = {"inputs": inputs, "outputs": outputs, "signatures": signatures}
        module = SimpleNamespace(metadata=header, run=run, streams=1, **given)
        monkeypatch.setattr(batch, "load", lambda *_, **__: module)
        return Predictor("model.so", **options)

    return made


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("rows", [1, 4, 11])
def test_any_number_of_rows(linear, rows, streams):
    x = np.random.default_rng(rows).normal(size=(rows, 64)).astype("float32")
    number = np.arange(rows)
    found = Predictor(linear.path, streams=streams)({"x": x, "number": number})
    assert list(found) == ["number", "y"]
    np.testing.assert_array_equal(found["number"], number)
    assert found["y"].shape == (rows, 33)
    with neocpu.load(linear.path, 1) as module:
        for start in range(0, rows, 4):
            piece = x[start : start + 4]
            whole = np.concatenate([piece, piece[-1:].repeat(4 - len(piece), 0)])
            wanted = module(whole)[: len(piece)]
            assert found["y"][start : start + 4].tobytes() == wanted.tobytes()


def test_no_rows(linear):
    found = Predictor(linear.path)({"x": np.empty((0, 64), "float32")})
    assert found["y"].shape == (0, 33)
    assert found["y"].dtype == np.float32


def test_a_set_of_batches(fake):
    """A call has as many rows as the largest batch; the module composes the rest."""
    calls = []

    def run(named):
        calls.append(len(named["x"]))
        return {"y": 2 * named["x"]}

    one = Signature(*[(TensorSpec(name, "float32", (1, 2)),) for name in "xy"])
    x = np.arange(22, dtype="float32").reshape(11, 2)
    found = fake(one.inputs, one.outputs, run, [one.with_rows(4)])({"x": x})
    np.testing.assert_array_equal(found["y"], 2 * x)
    assert calls == [4, 4, 3]


def test_a_set_of_batches_whose_rows_give_more_in_larger_ones(fake):
    calls = []

    def run(named):
        calls.append(len(named["x"]))
        return {"y": named["x"][:, :1]}

    one, four = (
        Signature((TensorSpec("x", "float32", (n, 2)),), (TensorSpec("y", "float32", (n, n)),))
        for n in (1, 4)
    )
    x = np.arange(10, dtype="float32").reshape(5, 2)
    found = fake(one.inputs, one.outputs, run, [four])({"x": x})
    np.testing.assert_array_equal(found["y"], x[:, :1])
    assert calls == [1] * 5


def test_columns_of_other_names(two_way):
    a, b = np.random.default_rng(0).normal(size=(2, 4, 3, 8, 6)).astype("float32")
    predictor = Predictor(
        two_way.path, columns={"image": "left", "mask": "right"}, outputs={"sum": "total"}
    )
    found = predictor({"left": objects(*a), "right": b})
    assert list(found) == ["total"]
    np.testing.assert_allclose(found["total"], two_way.reference(a, b)[0], rtol=1e-5, atol=1e-5)


def test_columns_of_other_lengths_are_refused(fake):
    inputs = [TensorSpec(name, "float32", (4, 3)) for name in ("a", "b")]
    made = fake(inputs, [TensorSpec("y", "float32", (4, 3))], lambda named: {"y": named["b"]})
    columns = {"a": np.zeros((3, 3), "float32"), "b": np.zeros((2, 3), "float32")}
    with pytest.raises(UsageError, match="different numbers of rows: 3 in 'a', 2 in 'b'"):
        made(columns)


def test_an_output_that_is_not_rows(fake):
    """A model of one row may have any outputs, such as a detector's boxes."""
    inputs = [TensorSpec("x", "float32", (1, 2))]
    outputs = [
        TensorSpec("boxes", "float32", (9, 4), bounded=True),
        TensorSpec("grid", "float32", (3, 2)),
        TensorSpec("half", "bfloat16", (1, 2)),
    ]

    def run(named):
        (x,) = named.values()
        count = int(x[0, 0])
        bits = (x.view(np.uint32) >> 16).astype(np.uint16)
        return {"boxes": np.full((count, 4), count), "grid": np.ones((3, 1)) * x, "half": bits}

    x = np.array([[2, 1], [0, 5], [3, 7]], "float32")
    found = fake(inputs, outputs, run)({"x": x})
    assert [boxes.shape for boxes in found["boxes"]] == [(2, 4), (0, 4), (3, 4)]
    np.testing.assert_array_equal(found["grid"], x[:, None].repeat(3, 1))
    assert found["half"].dtype == np.float32
    np.testing.assert_array_equal(found["half"], x)


def test_of_several_batches_one_row_is_taken_where_boxes_are_found(fake):
    """The order of the batches does not matter."""

    def run(named):
        (x,) = named["x"]
        return {"boxes": np.full((int(x[0]), 4), x[1])}

    three, one = (
        Signature(
            (TensorSpec("x", "float32", (n, 2)),),
            (TensorSpec("boxes", "float32", (9 * n, 4), bounded=True),),
        )
        for n in (3, 1)
    )
    x = np.array([[2, 1], [0, 5], [3, 7]], "float32")
    found = fake(three.inputs, three.outputs, run, [one])({"x": x})
    assert [boxes.shape for boxes in found["boxes"]] == [(2, 4), (0, 4), (3, 4)]


def test_rows_that_may_matter_to_each_other(fake):
    one, four = ([[TensorSpec(name, "float32", (rows, 2))] for name in "xy"] for rows in (1, 4))
    mixed = "mean 'm' reduces over the rows of a batch"
    x = np.ones((3, 2), "float32")
    found = fake(*one, lambda named: {"y": named["x"]}, mixed=mixed)({"x": x})
    np.testing.assert_array_equal(found["y"], x)
    with pytest.raises(UsageError, match=r"model\.so: rows cannot be .* together: mean 'm'"):
        fake(*four, None, mixed=mixed)


def test_pictures_as_files_and_as_pixels(fake):
    seen = []

    def run(named):
        seen.append(named["x"].copy())
        return {"y": named["x"].sum(axis=(1, 2, 3), dtype=np.int64)}

    outputs = [TensorSpec("y", "int64", (1,))]
    large = np.repeat(np.repeat(PIXELS, 2, axis=0), 2, axis=1)
    grey = PIXELS[:, :, 0]
    given = objects(file(PIXELS), PIXELS, large, file(large), grey, PIXELS[:, :, :1])
    found = fake([PICTURE], outputs, run)({"x": given})
    np.testing.assert_array_equal(seen[0][0], PIXELS)
    np.testing.assert_array_equal(seen[1], seen[0])
    np.testing.assert_array_equal(seen[2], seen[3])
    np.testing.assert_array_equal(seen[4][0], grey[:, :, None].repeat(3, 2))
    np.testing.assert_array_equal(seen[5], seen[4])
    assert found["y"].tolist() == [int(x.sum(dtype=np.int64)) for x in seen]
    planar = TensorSpec("x", "uint8", (1, 3, 6, 8), picture=Picture("nchw", "bgr", "stretch"))
    fake([planar], outputs, run)({"x": PIXELS[None]})
    np.testing.assert_array_equal(seen[6][0], PIXELS[:, :, ::-1].transpose(2, 0, 1))


def test_rows_that_are_no_pictures_get_an_error(fake):
    def run(named):
        return {"y": named["x"].sum(axis=(1, 2, 3), dtype=np.int64)}

    outputs = [TensorSpec("y", "int64", (1,))]
    given = {"x": objects(file(PIXELS), b"no picture", None, PIXELS.astype("float32"), PIXELS[:0])}
    with pytest.raises(UsageError, match="row 1: no picture") as caught:
        fake([PICTURE], outputs, run)(given)
    assert "errors= names a column" in str(caught.value)
    found = fake([PICTURE], outputs, run, errors="error")(given)
    assert found["y"].tolist() == [int(PIXELS.sum(dtype=np.int64)), 0, 0, 0, 0]
    assert found["error"][0] == ""
    for row, words in enumerate(
        ["cannot identify", r"NoneType\[\]", r"float32\[6,8,3\]", "has no pixels"], 1
    ):
        with pytest.raises(AssertionError, match=words):
            raise AssertionError(found["error"][row])
        assert "\n" not in found["error"][row]


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({}, {"z": np.zeros((4, 64), "float32")}, "the data set has no column 'x', only z"),
        ({}, {"x": [[0.0] * 64] * 4}, "column 'x' is a list and not an array: .*'numpy'"),
        ({}, {"x": np.zeros((4, 64))}, r"a row is float32\[64\], got float64\[64\]"),
        ({}, {"x": np.zeros((4, 65), "float32")}, r"a row is float32\[64\], got float32\[65\]"),
        ({}, {"x": objects(np.zeros(3, "float32"))}, r"a row is float32\[64\], got float32\[3\]"),
        ({}, {"x": objects(b"file")}, "compiled for pictures take: neocpu compile --input x=u8"),
        ({}, {"x": np.zeros((4, 64), "float32"), "y": np.zeros(4)}, "would be called 'y'"),
        ({"errors": "y"}, {"x": np.zeros((4, 64), "float32")}, "would be called 'y'"),
        ({"columns": {"z": "x"}}, {}, "columns=: the model has no input 'z', only x"),
        ({"outputs": {"z": "x"}}, {}, "outputs=: the model has no output 'z', only y"),
        ({"streams": 0}, {}, "streams must be from 1 to"),
    ],
)
def test_mistakes(linear, options, columns, message):
    with pytest.raises(UsageError, match=message) as caught:
        Predictor(linear.path, **options)(columns)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(), ()], r"no axis of rows that its inputs share: they are float32\[\]"),
        ([(2, 3), (3, 2)], r"they are float32\[2,3\], float32\[3,2\]"),
        ([(0, 3)], "no axis of rows"),
        ([], "no axis of rows"),
        ([(2, 3)], "has no row for each of 2 input rows: compile the model with a batch of 1"),
    ],
)
def test_models_that_do_not_compute_row_by_row(fake, shapes, message):
    inputs = [TensorSpec(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(UsageError, match=message):
        fake(inputs, [TensorSpec("y", "float32", (5,))], None)


def test_a_predictor_cannot_be_pickled(linear):
    with pytest.raises(TypeError, match="map_batches"):
        pickle.dumps(Predictor(linear.path))


def test_the_example_takes_folders_and_buckets(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    place = runpy.run_path(str(EXAMPLE))["place"]
    assert place("s3://photos/new") == "s3://photos/new"
    assert place("photos/new") == os.path.abspath("photos/new")


@pytest.mark.parametrize(
    ("asked", "streams", "cpus", "workers"),
    [
        (None, 1, 8, 2),
        (None, 1, 2, 1),
        (None, 4, 8, 1),
        (7, 1, 8, 7),
        (2, 1, 2, 2),
        (None, 1, 1, 1),
    ],
)
def test_the_example_leaves_a_cpu_for_reading(monkeypatch, capsys, asked, streams, cpus, workers):
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    count_workers = runpy.run_path(str(EXAMPLE))["count_workers"]
    assert count_workers(asked, streams, cpus) == workers
    told = "leave none of the cluster's" in capsys.readouterr().err
    assert told == (workers * streams >= cpus)
