"""Kernels that rank, or choose of what there is what comes first."""
