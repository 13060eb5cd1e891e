"""Operators in fast numpy, in the place of those of onnx that are slow, missing or left open."""
