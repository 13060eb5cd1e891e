"""Kernels that move elements: transposes, and columns of windows."""
