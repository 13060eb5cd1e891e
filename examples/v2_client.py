"""Ask a v2 server: ``python examples/v2_client.py http://127.0.0.1:8080 resnet50``.

Needs ``pip install tritonclient[http]``. It works with ``neocpu serve`` and the examples here; but
MLServer takes no binary tensors over HTTP: add ``--json``.
"""

import sys

import numpy as np
import tritonclient.http as v2
from tritonclient.utils import triton_to_np_dtype


def main(url: str, model: str, *, binary: bool) -> None:
    """Send random inputs once and print the shape and range of each output."""
    rng = np.random.default_rng(seed=0)
    with v2.InferenceServerClient(url.removeprefix("http://")) as client:
        metadata = client.get_model_metadata(model)
        inputs = []
        for spec in metadata["inputs"]:
            dtype = triton_to_np_dtype(spec["datatype"])
            tensor = v2.InferInput(spec["name"], spec["shape"], spec["datatype"])
            array = rng.standard_normal(spec["shape"]).astype(dtype)
            tensor.set_data_from_numpy(array, binary_data=binary)
            inputs.append(tensor)
        names = [spec["name"] for spec in metadata["outputs"]]
        wanted = [v2.InferRequestedOutput(name, binary_data=binary) for name in names]
        answer = client.infer(model, inputs, outputs=wanted)
        for name in names:
            array = answer.as_numpy(name)
            print(f"{name}: {array.dtype}{list(array.shape)} from {array.min()} to {array.max()}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], binary="--json" not in sys.argv[3:])
