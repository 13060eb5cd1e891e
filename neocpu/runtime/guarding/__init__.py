"""Tensors against inaccessible pages, for tests and for doctor: NEOCPU_GUARD=1."""
