"""Operators that other packages add: their type, their registry, and their compilation."""
