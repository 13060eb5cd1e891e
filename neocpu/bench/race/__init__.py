"""Latency of models beside other engines."""
