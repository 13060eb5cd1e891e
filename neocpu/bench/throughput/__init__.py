"""Calls a second and memory of engines that make several calls at once."""
