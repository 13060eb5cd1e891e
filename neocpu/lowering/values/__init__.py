"""Which tensors of a model a compiled one has, and where: a name, from Relax to the arena."""
