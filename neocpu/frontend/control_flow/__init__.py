"""Control flow and sequences of ONNX, rewritten into a graph without any."""
