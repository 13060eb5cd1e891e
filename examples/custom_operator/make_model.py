"""Write pixel_norm.onnx, a model that uses the operator, as an exporter would.

With PyTorch: ``torch.onnx.export(…, custom_translation_table={…})``, or a symbolic function that
returns ``g.op("pixel_norm::PixelNorm", x, epsilon_f=1e-8)``.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

weights = np.random.default_rng(0).standard_normal((16, 3, 3, 3)).astype(np.float32)
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["image", "weights"], ["features"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "PixelNorm", ["features"], ["scaled"], name="norm", domain="pixel_norm", epsilon=1e-6
        ),
        helper.make_node("Relu", ["scaled"], ["y"]),
    ],
    "pixel_norm",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 32, 32))],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 16, 32, 32))],
    [numpy_helper.from_array(weights, "weights")],
)
imports = [helper.make_opsetid("", 17), helper.make_opsetid("pixel_norm", 1)]
onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "pixel_norm.onnx")
