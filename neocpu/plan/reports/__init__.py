"""What `explain` prints of a compiled model."""
