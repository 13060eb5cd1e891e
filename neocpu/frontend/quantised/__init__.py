"""Quantised models: the forms that quantisers write become one, QuantizeLinear and its inverse."""
