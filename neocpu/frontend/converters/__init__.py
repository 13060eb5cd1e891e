"""Our converters from ONNX operators to Relax, where TVM has none or a wrong one."""
