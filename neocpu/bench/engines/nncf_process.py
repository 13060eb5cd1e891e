"""Quantising by NNCF with its defaults: ``python -m … MODEL.onnx SAMPLES.npz OUT.xml``."""

from __future__ import annotations

import sys

import numpy as np


def main(source: str, data: str, path: str) -> None:
    """Write a model in 8 bits as OpenVINO's own format."""
    import nncf
    import openvino

    with np.load(data) as samples:
        arrays = dict(samples)
    model = openvino.Core().read_model(source)
    extents = {name: model.input(name).shape[0] for name in arrays}
    count = min(len(array) // extents[name] for name, array in arrays.items())
    inputs = [
        {name: each[i * extents[name] : (i + 1) * extents[name]] for name, each in arrays.items()}
        for i in range(count)
    ]
    made = nncf.quantize(model, nncf.Dataset(inputs), subset_size=count)
    openvino.save_model(made, path, compress_to_fp16=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
