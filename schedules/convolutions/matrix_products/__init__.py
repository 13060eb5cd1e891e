"""Convolutions by instructions that multiply several pixels by several channels at once."""
