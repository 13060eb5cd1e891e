"""Recurrent layers: the kernel that runs a layer's loop over time."""
