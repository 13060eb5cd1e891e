"""Local search (one convolution) and global search (the whole graph)."""
