"""What is computed while compiling, and what vanishes in weights."""
