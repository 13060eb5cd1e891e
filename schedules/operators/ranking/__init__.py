"""Kernels that sort, rank or select elements."""
