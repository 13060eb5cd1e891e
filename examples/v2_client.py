"""Send a request to a v2 server: ``python examples/v2_client.py http://127.0.0.1:8080 resnet50``.

Needs ``pip install tritonclient[http]``. It works with ``neocpu serve`` and the examples here;
MLServer takes no binary tensors over HTTP, so add ``--json`` there. A model with a set of shapes
takes one of them: varying extents are 1 unless ``--shape image:4,3,224,224`` sets them.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import tritonclient.http as v2
from tritonclient.utils import InferenceServerException, triton_to_np_dtype


def main(url: str, model: str, shapes: dict[str, list[int]], *, binary: bool) -> None:
    """Send random inputs once and print the shape and range of each output."""
    rng = np.random.default_rng(seed=0)
    with v2.InferenceServerClient(url.removeprefix("http://")) as client:
        metadata = client.get_model_metadata(model)
        inputs = []
        for spec in metadata["inputs"]:
            dtype = triton_to_np_dtype(spec["datatype"])
            anything = [1 if extent == -1 else extent for extent in spec["shape"]]
            shape = shapes.get(spec["name"], anything)
            tensor = v2.InferInput(spec["name"], shape, spec["datatype"])
            array = rng.standard_normal(shape).astype(dtype)
            tensor.set_data_from_numpy(array, binary_data=binary)
            inputs.append(tensor)
        names = [spec["name"] for spec in metadata["outputs"]]
        wanted = [v2.InferRequestedOutput(name, binary_data=binary) for name in names]
        answer = client.infer(model, inputs, outputs=wanted)
        for name in names:
            array = answer.as_numpy(name)
            extremes = f" from {array.min()} to {array.max()}" if array.size else ""
            print(f"{name}: {array.dtype}{list(array.shape)}{extremes}")


def named_shape(text: str) -> tuple[str, list[int]]:
    """Return the name and the extents in ``NAME:1,3,224,224``."""
    name, _, extents = text.rpartition(":")
    return name, [int(extent) for extent in extents.split(",")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Ask a v2 server.")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--json", action="store_true", help="send and receive tensors as JSON")
    parser.add_argument(
        "--shape",
        type=named_shape,
        action="append",
        default=[],
        metavar="NAME:EXTENTS",
        help="the shape of an input that takes several",
    )
    given = parser.parse_args()
    try:
        main(given.url, given.model, dict(given.shape), binary=not given.json)
    except InferenceServerException as error:
        sys.exit(f"the server says: {error.message()}")
