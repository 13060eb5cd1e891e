"""Tensors on grids, and convolutions of integers, which quantised models leave to choose."""
