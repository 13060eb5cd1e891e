"""Lowering of a planned graph to kernels and memory: layouts, packed weights, loops, the arena."""
