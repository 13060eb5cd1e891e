"""ONNX operators as Relax: our converters, a file per family, where TVM has none or a wrong one."""
