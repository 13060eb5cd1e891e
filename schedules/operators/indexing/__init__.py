"""Kernels that read or write where data says, whatever it is."""
