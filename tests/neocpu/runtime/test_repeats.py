"""Repeated and conditional calls, over slices of tensors that advance."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from forgery import forge_header

from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError, NeoCPUError
from neocpu.foundation.json_codec import fields_to_json
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.artifact import read_header
from neocpu.runtime.header_parts import Placement, Repeat, Slice
from neocpu.runtime.module import load

ROWS, WIDTH = 5, 16
X, COUNT, FLAG, ZERO = range(4)  # inputs, and a weight
A, B, OUT, INDEX, AGAIN, LAST = range(4, 10)  # activations
SLICE = 10
"""Number of the first slice."""


@dataclass
class Looped:
    """An artifact with kernels ``add`` and ``less``, for headers with any calls."""

    path: Path
    folder: Path

    def changed(self, calls, repeats, slices=(), **fields):
        header = {
            **read_header(self.path).to_json(),
            "calls": [list(call) for call in calls],
            "repeats": [
                each if isinstance(each, dict) else fields_to_json(each) for each in repeats
            ],
            "slices": [each if isinstance(each, list) else each.to_json() for each in slices],
            **fields,
        }
        return forge_header(self.path, self.folder / "changed.so", header)

    def run(self, *program, count=ROWS, flag=True):
        x = np.random.default_rng(0).standard_normal((ROWS, WIDTH), np.float32)
        with load(self.changed(*program), 1) as module:
            for _ in range(2):  # nothing is left over
                out = module([x, np.array([count]), np.array([flag])])
        return x, out


@pytest.fixture(scope="module")
def looped(tmp_path_factory):
    from tvm import relax

    from tests.neocpu.conftest import _header, build_module

    builder = relax.BlockBuilder()
    row, one = relax.TensorType((WIDTH,), "float32"), relax.TensorType((1,), "int64")
    p, q, i, n = relax.Var("p", row), relax.Var("q", row), relax.Var("i", one), relax.Var("n", one)
    with builder.function("main", [p, q, i, n]):
        with builder.dataflow():
            sums = builder.emit(relax.op.add(p, q))
            less = builder.emit(relax.op.less(i, n))
            result = builder.emit_output(relax.Tuple([sums, less]))
        builder.emit_func_output(result)
    built = build_module(relax.transform.LegalizeOps()(builder.get()))
    specs = [
        TensorSpec("x", "float32", (ROWS, WIDTH)),
        TensorSpec("count", "int64", (1,)),
        TensorSpec("flag", "bool", (1,)),
    ]
    header = _header("looped", specs, [TensorSpec("out", "float32", (ROWS, WIDTH))])
    folder = tmp_path_factory.mktemp("looped")
    write_artifact(built, [], header, folder / "built.so")
    written = folder / "looped.so"
    kinds = ("float32", (WIDTH,)), ("float32", (WIDTH,)), ("float32", (ROWS, WIDTH))
    kinds += ("int64", (1,)), ("bool", (1,)), ("int64", (1,))
    places = [Placement(512 * k, *kind) for k, kind in enumerate(kinds)]
    write_artifact(built, [np.zeros(WIDTH, np.float32)], header, folder / "weighted.so")
    header = {
        **read_header_unchecked(folder / "weighted.so"),
        "activations": [place.to_json() for place in places],
        "arena_bytes": 512 * len(places),
        "returns": [OUT],
        **{
            "calls": CALLS,
            "repeats": [fields_to_json(LOOP)],
            "slices": [s.to_json() for s in SLICES],
        },
    }
    forge_header(folder / "weighted.so", written, header)
    return Looped(written, folder)


def read_header_unchecked(path):
    """Return the header of a file that still has the calls of another program."""
    data = path.read_bytes()
    start = data.index(b'{"format":')
    return json.loads(data[start : data.index(b"\n", start)])


CALLS = [
    ["add", ZERO, ZERO, A],
    ["add", SLICE, A, B],
    ["add", B, ZERO, A],
    ["add", B, ZERO, SLICE + 1],
]
"""Cumulative sums of the rows of x."""
LOOP = Repeat(first=1, end=4, limit=ROWS)
ROW = ("float32", (WIDTH,))
SLICES = [Slice(0, X, False, *ROW), Slice(0, OUT, False, *ROW)]


def test_counted_loops_over_slices(looped):
    x, out = looped.run(CALLS, [LOOP], SLICES)
    np.testing.assert_allclose(out, np.cumsum(x, axis=0), rtol=1e-6)


@pytest.mark.parametrize("into", [False, True])
def test_backward(looped, into):
    x, out = looped.run(CALLS, [LOOP], [Slice(0, X, True, *ROW), Slice(0, OUT, into, *ROW)])
    expected = np.cumsum(x[::-1], axis=0)
    np.testing.assert_allclose(out[::-1] if into else out, expected, rtol=1e-6)


@pytest.mark.parametrize("count", [-3, 0, 1, ROWS])
def test_as_often_as_a_tensor_says(looped, count):
    clear = ["add", ZERO, ZERO, SLICE + 2]
    calls = [clear, *CALLS]
    repeats = [Repeat(first=0, end=1, limit=ROWS), Repeat(first=2, end=5, limit=ROWS, count=COUNT)]
    slices = [Slice(1, X, False, *ROW), Slice(1, OUT, False, *ROW), Slice(0, OUT, False, *ROW)]
    x, out = looped.run(calls, repeats, slices, count=count)
    expected = np.cumsum(x, axis=0)
    expected[max(count, 0) :] = 0
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_more_often_than_the_limit(looped):
    with pytest.raises(NeoCPUError, match="would repeat calls 1 to 3 6 times, of at most 5"):
        looped.run(CALLS, [Repeat(first=1, end=4, limit=ROWS, count=COUNT)], SLICES, count=ROWS + 1)


@pytest.mark.parametrize("last", range(ROWS))
def test_while(looped, last):
    """The index is compared with the count: as many repetitions as that, and one more."""
    clear = ["add", ZERO, ZERO, SLICE + 2]
    calls = [clear, *CALLS, ["less", INDEX, COUNT, AGAIN]]
    repeats = [
        Repeat(first=0, end=1, limit=ROWS),
        Repeat(first=2, end=6, limit=ROWS, condition=AGAIN, index=INDEX),
    ]
    slices = [Slice(1, X, False, *ROW), Slice(1, OUT, False, *ROW), Slice(0, OUT, False, *ROW)]
    x, out = looped.run(calls, repeats, slices, count=last)
    expected = np.cumsum(x, axis=0)
    expected[last + 1 :] = 0
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize("flag", [False, True])
def test_branches(looped, flag):
    """Twice the row if the flag is set, else three times."""
    calls = [
        ["add", SLICE, ZERO, A],
        ["add", A, SLICE, SLICE + 1],
        ["add", A, SLICE, B],
        ["add", B, SLICE, SLICE + 1],
    ]
    repeats = [
        Repeat(first=0, end=4, limit=ROWS),
        Repeat(first=1, end=2, limit=1, count=FLAG),
        Repeat(first=2, end=4, limit=1, unless=FLAG),
    ]
    x, out = looped.run(calls, repeats, SLICES, flag=flag)
    np.testing.assert_allclose(out, x * (2 if flag else 3), rtol=1e-6)


def test_loops_in_loops(looped):
    """Each row is added to itself as often as there are rows. Both loops may begin at one call."""
    calls = [["add", SLICE, A, B], ["add", B, ZERO, A], ["add", A, ZERO, SLICE + 1]]
    calls = [["add", ZERO, ZERO, A], *calls]
    repeats = [
        Repeat(first=0, end=4, limit=ROWS),
        Repeat(first=1, end=3, limit=4),
        Repeat(first=1, end=3, limit=2),
    ]
    x, out = looped.run(calls, repeats, SLICES)
    np.testing.assert_allclose(out, 8 * x, rtol=1e-5)
    x, out = looped.run(
        calls[1:], [Repeat(first=0, end=3, limit=ROWS), Repeat(first=0, end=2, limit=1)], SLICES
    )
    assert np.isfinite(out).all()


def test_a_loop_behind_a_loop_in_a_loop(looped):
    """The last loop doubles the rows, whatever the loops before it have written."""
    calls = [["add", ZERO, ZERO, A], ["add", SLICE, A, B], ["add", B, ZERO, A]]
    calls += [["add", A, ZERO, SLICE + 1], ["add", SLICE + 2, SLICE + 2, SLICE + 3]]
    repeats = [
        Repeat(first=0, end=4, limit=ROWS),
        Repeat(first=1, end=3, limit=4),
        Repeat(first=4, end=5, limit=ROWS),
    ]
    slices = [*SLICES, Slice(2, X, False, *ROW), Slice(2, OUT, False, *ROW)]
    x, out = looped.run(calls, repeats, slices)
    np.testing.assert_allclose(out, 2 * x, rtol=1e-6)


@pytest.mark.parametrize(
    ("repeats", "slices", "blamed"),
    [
        ([Repeat(first=1, end=1, limit=2)], [], "repeats"),
        ([Repeat(first=1, end=5, limit=2)], [], "repeats"),
        ([Repeat(first=2, end=4, limit=2), Repeat(first=1, end=2, limit=2)], [], "repeats"),
        ([Repeat(first=0, end=3, limit=2), Repeat(first=1, end=4, limit=2)], [], "repeats"),
        ([Repeat(first=0, end=3, limit=2), Repeat(first=0, end=4, limit=2)], [], "repeats"),
        ([{"first": 0, "end": 1}], [], "repeats"),
        ([Repeat(first=1, end=4, limit=ROWS, count=X)], SLICES, "repeats"),
        ([Repeat(first=1, end=4, limit=ROWS, unless=COUNT)], SLICES, "repeats"),
        ([Repeat(first=1, end=4, limit=ROWS, condition=COUNT)], SLICES, "repeats"),
        ([Repeat(first=1, end=4, limit=ROWS, index=COUNT)], SLICES, "repeats"),
        ([Repeat(first=1, end=4, limit=ROWS, index=AGAIN)], SLICES, "repeats"),
        ([Repeat(first=1, end=4, limit=ROWS, count=SLICE)], SLICES, "repeats"),
        ([Repeat(first=1, end=4, limit=ROWS, count=99)], SLICES, "repeats"),
        ([Repeat(first=1, end=4, limit=ROWS + 1)], SLICES, "slices"),
        ([Repeat(first=1, end=3, limit=ROWS)], SLICES, "slices"),
        ([Repeat(first=2, end=4, limit=ROWS)], SLICES, "slices"),
        ([LOOP], [SLICES[0], Slice(1, OUT, False, *ROW)], "slices"),
        ([LOOP], [SLICES[0], Slice(0, SLICE, False, *ROW)], "slices"),
        ([LOOP], [SLICES[0], Slice(0, OUT, False, "float32", (15,))], "slices"),
        ([LOOP], [SLICES[0], Slice(0, A, False, *ROW)], "slices"),
        ([LOOP], [SLICES[0], [0, OUT, 1, *ROW]], "slices"),
        ([LOOP], [SLICES[0], [0, OUT, False, "float32"]], "slices"),
        ([LOOP], [SLICES[0]], "calls"),
    ],
)
def test_what_cannot_be_is_refused(looped, repeats, slices, blamed):
    calls = CALLS if slices else [["add", ZERO, ZERO, A]] * 4
    with pytest.raises(ArtifactError, match=rf"malformed header \({blamed}\)"):
        load(looped.changed(calls, repeats, slices))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (["add", A, ZERO, SLICE], "writes an input or a weight"),
        (["add", SLICE + 1, ZERO, SLICE + 1], "writes what it reads"),
        (["add", SLICE + 1, ZERO, SLICE + 2], "writes what it reads"),
        (["add", OUT, ZERO, A], "of another size"),
    ],
)
def test_slices_must_fit_their_tensors(looped, call, reason):
    slices = [*SLICES, Slice(0, OUT, True, *ROW)]
    path = looped.changed([CALLS[0], call, *CALLS[2:]], [LOOP], slices)
    with pytest.raises(ArtifactError, match=reason):
        load(path)
    with pytest.raises(ArtifactError, match=r"malformed header \(returns\)"):
        load(looped.changed(CALLS, [LOOP], SLICES, returns=[SLICE]))


def test_a_trace_has_every_time(looped):
    with load(looped.path, 1) as module:
        module.start_trace()
        module([np.zeros((ROWS, WIDTH), np.float32), np.array([1]), np.array([True])])
        timeline = module.stop_trace()
    kernels = [event.call for event in timeline.events if event.call >= 0 and event.loop < 0]
    assert kernels == [0, *([1, 2, 3] * ROWS)]
    assert [call.others for call in timeline.calls] == [64, 192, 128, 128]


def test_headers_say_so(looped):
    header = read_header(looped.path)
    assert header.repeats == (LOOP,)
    assert header.slices == tuple(SLICES)
