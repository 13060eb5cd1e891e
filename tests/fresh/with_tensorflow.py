"""A network of Keras, exported as docs/models.md says, and compiled where TensorFlow is.

Run it in the clone: `.venv/bin/python tests/fresh/with_tensorflow.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from use_model import BUILD, in_one_process, on_the_command_line, only_input


def main() -> None:
    """Do all of it, TensorFlow and TVM in one process."""
    import tensorflow as tf

    BUILD.mkdir(exist_ok=True)
    net = tf.keras.applications.MobileNetV2(input_shape=(96, 96, 3), weights=None, classes=10)
    image = np.random.default_rng(0).random((1, 96, 96, 3), "float32")
    expected = net(image).numpy()
    for path in (by_keras(net), by_tf2onnx(net)):
        name, _ = only_input(path)
        in_one_process(path, {name: image}, [expected], shapes={name: image.shape})
    on_the_command_line(path)


def by_keras(net: object) -> Path:
    """Export by Keras itself."""
    path = BUILD / "keras.onnx"
    net.export(str(path), format="onnx")  # type: ignore[attr-defined]
    return path


def by_tf2onnx(net: object) -> Path:
    """Export a SavedModel by tf2onnx's command."""
    saved, path = BUILD / "saved_model", BUILD / "tensorflow.onnx"
    net.export(str(saved))  # type: ignore[attr-defined]
    command = ["-m", "tf2onnx.convert", "--saved-model", str(saved), "--output", str(path)]
    subprocess.run([sys.executable, *command], check=True)
    return path


if __name__ == "__main__":
    main()
