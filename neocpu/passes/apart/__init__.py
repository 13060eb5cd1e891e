"""A proof that rows of a batch are computed apart from each other, from a module's graph."""
