"""Kernels that quantise data and pack quantised data."""
