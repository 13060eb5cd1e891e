"""Inputs and outputs in files of NumPy's formats."""
