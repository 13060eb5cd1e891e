"""Tensors whose number of rows only the data decides: an upper bound and a count instead."""
