"""Recurrent layers: kernels that run a layer's loop over time."""
