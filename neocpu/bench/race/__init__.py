"""Latency of models, compared with other engines."""
