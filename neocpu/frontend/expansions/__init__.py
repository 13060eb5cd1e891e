"""Operators that are written as others before the import."""
