"""Inputs and outputs in files: what users name, and NumPy's format."""
