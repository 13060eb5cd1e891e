"""Kernels that multiply activations: attention, and products of two matrices."""
