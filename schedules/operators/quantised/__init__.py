"""Kernels that quantise, and pack what is quantised."""
