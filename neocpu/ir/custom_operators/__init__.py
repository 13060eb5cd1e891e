"""Operators that other packages add: what one is, where it is found, and how it is compiled."""
