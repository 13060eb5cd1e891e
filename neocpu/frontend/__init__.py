"""Read, check, simplify and freeze an ONNX model, then import it into Relax."""
