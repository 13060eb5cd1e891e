"""Kernels that move elements: transposed, or into columns of windows and back."""
