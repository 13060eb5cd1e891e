"""Operators that run in several layouts, and dense layers: a file each, which says all of one."""
