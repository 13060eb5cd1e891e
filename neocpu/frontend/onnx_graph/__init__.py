"""ONNX graphs: weights, constants, names and nodes, for all that read or write them."""
