"""A compiled model with all it takes to run it from C and C++, without Python."""
