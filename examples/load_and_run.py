"""Load a compiled model and run it: ``python examples/load_and_run.py resnet50.so``."""

import sys

import numpy as np

import neocpu

rng = np.random.default_rng(seed=0)
with neocpu.load(sys.argv[1]) as module:
    print(module)
    inputs = {
        spec.name: rng.standard_normal(spec.shape).astype(spec.dtype) for spec in module.inputs
    }
    module.warmup()
    for name, array in module.run(inputs).items():
        print(f"{name}: {array.dtype}{list(array.shape)} from {array.min()} to {array.max()}")
