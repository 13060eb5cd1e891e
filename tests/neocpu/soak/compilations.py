"""Compile tiny models, ROUNDS times in this process after WARMUP, and check that nothing grows.

It needs a separate process, because memory of earlier tests would hide growth.
"""

import sys

import numpy as np
import onnx
from onnx import helper

import neocpu
from tests.float_models import float_model
from tests.neocpu.soak.flat import MEMORY_SLACK, check_flat

KINDS = 13 * 17
"""The number of different models; after one round of each, caches by workload are full."""

KEPT_BYTES = 48 << 20
"""Resident memory that TVM and the heap take for the first `KINDS` and never release."""


def tiny(number: int) -> onnx.ModelProto:
    """One of `KINDS` convolutions, each of its own size, with weights of its own."""
    rng = np.random.default_rng(number)
    filters, size = 4 + number % 13, 6 + number % 17
    weights = rng.standard_normal((filters, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    ends = {"x": (1, 3, size, size)}, {"y": (1, filters, size, size)}
    return float_model(f"tiny{number}", nodes, *ends, {"w": weights})


def main(rounds: int, warmup: int) -> None:
    """Print this process's footprint before and after."""
    memory = MEMORY_SLACK if warmup >= KINDS else KEPT_BYTES

    def work(number: int) -> None:
        neocpu.compile(tiny(number), threads=1).close()

    print(*check_flat(work, rounds, warmup=warmup, memory=memory), sep="\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
