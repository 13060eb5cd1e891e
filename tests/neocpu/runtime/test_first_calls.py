"""The first calls of a module, made by many threads at once, wait for one check of the weights."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from float_models import float_model
from onnx import helper

import neocpu

CALLERS, LOADS = 8, 40


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense layer with weights that are checked in many pieces."""
    weights = np.random.default_rng(0).standard_normal((3000, 4000)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = float_model("heavy", nodes, {"x": (1, 3000)}, {"y": (1, 4000)}, {"w": weights})
    path = tmp_path_factory.mktemp("heavy") / "heavy.so"
    neocpu.compile(model, verify=False).export(path)
    return path


def test_no_caller_takes_sums_that_another_still_computes_for_damage(heavy: Path) -> None:
    x = np.zeros((1, 3000), np.float32)
    failures: list[BaseException] = []

    def call(module: neocpu.Module, together: threading.Barrier) -> None:
        together.wait()
        try:
            module(x)
        except neocpu.NeoCPUError as error:
            failures.append(error)

    for _ in range(LOADS):
        with neocpu.load(heavy, threads=1) as module:
            together = threading.Barrier(CALLERS)
            callers = [
                threading.Thread(target=call, args=(module, together)) for _ in range(CALLERS)
            ]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
    assert failures == []
