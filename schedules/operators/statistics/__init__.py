"""Kernels that use statistics of all pixels of a feature map."""
