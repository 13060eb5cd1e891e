"""Quantise a classifier, print the loss of accuracy, and compile it in mixed precision.

``python examples/quantize_classifier.py net.onnx photos/``; needs ``neocpu[quantize]``. Photos are
cropped and normalised as for most ImageNet classifiers; `Preprocessing` changes this.
"""

import sys
from pathlib import Path

import neocpu


def main(path: str, photos: str) -> None:
    """Write ``net.int8.onnx`` for any engine, and ``net.mixed.so`` for this machine."""
    stem = Path(path).with_suffix("")
    made = neocpu.quantize(path, photos)
    made.save(f"{stem}.int8.onnx")
    for name, decibels in made.report.outputs.items():
        print(f"{name}: signal {decibels:.1f} dB above noise with all layers in 8 bits")
    if made.report.agreement is not None:
        print(f"{made.report.agreement:.1%} of the photos have the same class as in float32")
    for layer in made.report.poor[:5]:
        print(f"worth leaving in float32: {layer.name}, {layer.output_db:.1f} dB")

    with neocpu.compile_calibrated(path, photos, max_error=0.1) as compiled:
        compiled.export(f"{stem}.mixed.so")
        print(f"{len(compiled.integers)} layers are faster in integers, and are so in the artifact")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
