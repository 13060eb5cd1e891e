"""Rewrite control flow and sequences of ONNX into a graph without any."""
