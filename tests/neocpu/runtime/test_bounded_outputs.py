"""Outputs with a hidden row count: only the counted rows reach the user."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.artifact import read_header
from neocpu.runtime.module import load

ROWS = 7


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Return ``(x + 1, sum of x)`` for ``x`` of 7x2, followed by the given ``count``."""
    from tvm import relax

    from tests.neocpu.conftest import _header, build_module

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, 2), "float32"))
    count = relax.Var("count", relax.TensorType((1,), "int64"))
    with builder.function("main", [x, count]):
        with builder.dataflow():
            more = builder.emit(relax.op.add(x, relax.const(1.0)))
            total = builder.emit(relax.op.sum(x, axis=[0]))
            hidden = builder.emit(relax.op.add(count, relax.const(0, "int64")))
            result = builder.emit_output(relax.Tuple([more, total, hidden]))
        builder.emit_func_output(result)
    built = build_module(relax.transform.LegalizeOps()(builder.get()))
    header = _header(
        "counted",
        [TensorSpec("x", "float32", (ROWS, 2)), TensorSpec("count", "int64", (1,))],
        [
            TensorSpec("more", "float32", (ROWS, 2), bounded=True),
            TensorSpec("total", "float32", (2,)),
        ],
    )
    path = tmp_path_factory.mktemp("counted") / "counted.so"
    write_artifact(built, [], replace(header, row_counts=(2, None)), path)
    return path


@pytest.mark.parametrize("count", [0, 1, 4, ROWS])
def test_only_the_rows_that_count_are_returned(counted, count):
    x = np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2)
    number = np.array([count], np.int64)
    with load(counted, threads=1) as module:
        more, total = module([x, number])
        named = module.run({"count": number, "x": x})
    assert list(named) == ["more", "total"]
    assert more.shape == (count, 2)
    for array in (more, named["more"]):
        np.testing.assert_array_equal(array, x[:count] + 1)
        assert array.base is None
    np.testing.assert_array_equal(total, x.sum(0))


@pytest.mark.parametrize("count", [-1, ROWS + 1, 1 << 40])
def test_a_count_that_cannot_be_is_refused(counted, count):
    x, number = np.zeros((ROWS, 2), np.float32), np.array([count], np.int64)
    with load(counted, threads=1) as module:
        with pytest.raises(ArtifactError, match=f"'more': the model counted {count} rows of 7"):
            module([x, number])
        assert len(module([x, np.array([2], np.int64)])[0]) == 2


def test_the_header_says_what_is_bounded(counted):
    header = read_header(counted)
    assert header.row_counts == (2, None)
    assert [spec.bounded for spec in header.outputs] == [True, False]
    with load(counted, threads=1) as module:
        assert module.outputs == header.outputs
        assert "more: float32[up to 7, 2], total: float32[2]" in repr(module)
        module.warmup(1)


@pytest.mark.parametrize("count", [0, 3, ROWS])
def test_the_caller_s_array_takes_the_most_rows_there_can_be(counted, count):
    x = np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2)
    number = np.array([count], np.int64)
    out = {"more": np.full((ROWS, 2), -1, "f4"), "total": np.empty(2, "f4")}
    with load(counted, threads=1) as module:
        results = module.run({"count": number, "x": x}, out=out)
        with pytest.raises(UsageError, match=r"'more': expected float32\[7,2\] \(its largest\)"):
            module([x, number], out=[np.empty((count + 1, 3), "f4"), out["total"]])
    assert results["more"].shape == (count, 2)
    assert results["more"].base is out["more"]
    np.testing.assert_array_equal(out["more"][:count], x[:count] + 1)
    assert (out["more"][count:] == -1).all()
    assert results["total"] is out["total"]
