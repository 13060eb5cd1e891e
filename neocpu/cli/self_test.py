"""What ``neocpu doctor`` runs in a child process, because a wrong library may crash it.

``python -m neocpu.cli.self_test ffi|smoke`` prints a line of what it found and exits 0.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from neocpu.cli.terminal import echo
from neocpu.schedules.temporary import TemporaryFolder


def ffi() -> str:
    """Save and load a TVM object as JSON, where a wrong apache-tvm-ffi crashes."""
    import tvm
    from tvm import te

    x = te.placeholder((4,), name="x")
    function = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1)])
    again = tvm.ir.load_json(tvm.ir.save_json(function))
    tvm.ir.assert_structural_equal(function, again)
    return "a function survives its round trip through JSON"


def smoke() -> str:
    """Compile a convolution, check it against the reference, write it, load it and run it."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    import neocpu

    weights = np.random.default_rng(0).standard_normal((16, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "weights"], ["sums"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["sums"], ["features"]),
        ],
        "smoke",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 16, 16, 16])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    start = time.perf_counter()
    with TemporaryFolder("doctor") as folder:
        path = Path(folder) / "smoke.so"
        with neocpu.compile(model) as compiled:
            compiled.export(path)
            check = compiled.verification
        with neocpu.load(path) as module:
            result = module(np.ones((1, 3, 16, 16), np.float32))
    assert check is not None
    assert np.isfinite(result).all()
    seconds = time.perf_counter() - start
    return f"compiled and ran in {seconds:.1f} s, largest error {check.max_abs_error:.2g}"


TESTS: Final[dict[str, Callable[[], str]]] = {"ffi": ffi, "smoke": smoke}

if __name__ == "__main__":
    echo(TESTS[sys.argv[1]]())
