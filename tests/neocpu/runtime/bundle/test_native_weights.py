"""Damaged weights: found before any kernel reads them."""

import numpy as np
import pytest

from neocpu.building.elf import read_elf
from neocpu.building.link import write_artifact
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.header import WEIGHTS_SECTION
from tests.neocpu.conftest import _build, _header


@pytest.fixture
def gather(tmp_path):
    """Return ``y = x[indices]``, with a weight as the index, which kernels trust."""
    from tvm import relax

    inputs, outputs = TensorSpec("x", "float32", (9,)), TensorSpec("y", "float32", (1,))
    built = _build(
        [("x", (9,)), ("indices", (1,))],
        lambda bb, x, indices: bb.emit(relax.op.take(x, indices, axis=0, mode="fast")),
        indices="int64",
    )
    path = tmp_path / "gather.so"
    header = _header("gather", [inputs], [outputs])
    write_artifact(built, [np.array([3], np.int64)], header, path)
    return path


def test_no_kernel_runs_on_damaged_weights(run, gather):
    assert run(gather).returncode == 0
    data = bytearray(gather.read_bytes())
    data[read_elf(memoryview(data)).find(WEIGHTS_SECTION).offset + 6] ^= 0x40
    gather.write_bytes(data)
    done = run(gather)
    assert done.returncode == 8, done
    assert "the weights are damaged" in done.stderr
