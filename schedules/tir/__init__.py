"""From loop nests to machine code: building them, TVM's pipeline, intrinsics."""
