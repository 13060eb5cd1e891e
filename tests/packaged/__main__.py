"""Compile pretrained models in packages, and compare each with ONNX Runtime.

    pip install --no-deps rapidocr-onnxruntime silero-vad
    pip install opencv-python-headless pyclipper shapely pyyaml six pillow
    python -m tests.packaged

PP-OCRv4 reads two pages of text, one upside down, whole and with its own sessions; the lines must
be the same. Models whose package is not installed are left out.
"""

from __future__ import annotations

import importlib.util
import logging

from tests.packaged import ocr
from tests.packaged.models import MODELS, TOLERANCE, compare


def main() -> None:
    """Print a table, and fail if anything differs."""
    logging.disable(logging.WARNING)
    failed = False
    for model in MODELS:
        if model.file.is_file():
            error = compare(model)
            failed |= error > TOLERANCE
            print(f"{model.name}: differs by {error:.1e} of the largest value", flush=True)
        else:
            print(f"{model.name}: not there (pip install {model.package})")
    if importlib.util.find_spec(ocr.MODULE) is None:
        print(f"PP-OCR: not there (pip install {ocr.PACKAGE})")
    else:
        pages, sessions = ocr.read_pages()
        for expected, found in pages:
            failed |= found != expected
            print("\n".join(found))
            print("as ONNX Runtime reads it" if found == expected else f"it reads {expected}")
        for part, session in sessions.items():
            error = max(session.differences)
            failed |= error > TOLERANCE
            shapes = ", ".join("x".join(map(str, shape)) for shape in session.modules)
            print(f"{part} at {shapes}: differs by {error:.1e} of the largest value")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
