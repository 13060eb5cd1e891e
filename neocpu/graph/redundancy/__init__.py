"""What need not be computed at all, or not twice."""
