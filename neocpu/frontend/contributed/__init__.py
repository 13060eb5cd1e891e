"""ONNX Runtime's own operators, which its optimiser and other tools write for standard ones."""
