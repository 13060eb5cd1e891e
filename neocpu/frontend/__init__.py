"""ONNX in: read, check, simplify and freeze a model, then import it into Relax."""
