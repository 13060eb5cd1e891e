"""Fast numpy operators for those that onnx's evaluator lacks, gets wrong or computes slowly."""
