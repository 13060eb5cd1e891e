"""Rewrite all forms of quantised models to one, with QuantizeLinear and DequantizeLinear."""
