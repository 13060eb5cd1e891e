"""Latency over the number of threads: measured here, and predicted of machines of many cores."""
