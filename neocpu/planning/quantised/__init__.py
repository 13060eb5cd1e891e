"""Tensors on grids, and convolutions of integers: what a quantised model leaves to choose."""
