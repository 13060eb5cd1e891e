"""Throughput and memory of engines that make several calls at once."""
