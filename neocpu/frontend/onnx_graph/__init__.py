"""ONNX graphs: weights, constants, names and nodes, for all modules that read or write them."""
