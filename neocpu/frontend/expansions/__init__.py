"""Operators that are written in others, before anything is imported."""
