"""Tensors whose number of rows only the data decide: they get an upper bound and a count."""
