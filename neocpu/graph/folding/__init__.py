"""Rules that compute while compiling, or move constants into weights."""
