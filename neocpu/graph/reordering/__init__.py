"""Operators in another order, so that less is computed."""
