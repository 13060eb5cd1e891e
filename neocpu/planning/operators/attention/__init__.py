"""Attention over channels, and attention that mixes its heads."""
