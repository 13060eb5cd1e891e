"""The program that runs under the emulator: it runs each module of a folder on its inputs.

For every ``NAME.so`` with ``NAME.in.npz`` it writes ``NAME.out.npz``. It runs the module twice
with as many threads as it was compiled for, and once with one and with three threads; the outputs
must be equal bit for bit.
"""

import sys
from pathlib import Path

import numpy as np

import neocpu


def run(path: Path) -> None:
    """Run one module and write its outputs."""
    with np.load(path.with_suffix(".in.npz")) as file:
        inputs = dict(file)
    outputs = None
    for threads in (None, 1, 3):
        with neocpu.load(path, threads) as module:
            for _ in range(1 if threads else 2):
                again = module.run(inputs)
                outputs = outputs or again
                for name, value in again.items():
                    assert np.array_equal(value, outputs[name], equal_nan=True), (path, name)
    np.savez(path.with_suffix(".out.npz"), **outputs)


if __name__ == "__main__":
    for artifact in sorted(Path(sys.argv[1]).glob("*.so")):
        run(artifact)
