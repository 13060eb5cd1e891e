"""Code generation from loop nests: builders, TVM's pipeline, intrinsics."""
