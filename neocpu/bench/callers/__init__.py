"""Many threads calling one module."""
