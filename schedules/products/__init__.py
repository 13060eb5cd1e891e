"""Kernels that multiply activations with each other: attention, and products of two matrices."""
