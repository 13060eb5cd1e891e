"""Operators that run in several layouts, and dense layers, each described by a file of its own."""
