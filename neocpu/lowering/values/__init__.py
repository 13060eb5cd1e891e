"""The model's tensors that a compiled model still has, and their places in the arena."""
