"""ONNX Runtime's own operators, which its optimiser and others write in place of standard ones."""
