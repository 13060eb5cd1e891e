"""Run a compiled model: ``python examples/load_and_run.py resnet50.so``."""

import sys

import numpy as np

import neocpu


def main(path: str) -> None:
    """Run the artifact on random inputs and print the shape and range of each output."""
    rng = np.random.default_rng(seed=0)
    with neocpu.load(path) as module:
        inputs = {
            spec.name: rng.standard_normal(spec.shape).astype(spec.dtype) for spec in module.inputs
        }
        for name, array in module.run(inputs).items():
            print(f"{name}: {array.dtype}{list(array.shape)} from {array.min()} to {array.max()}")


if __name__ == "__main__":
    main(sys.argv[1])
