"""Attention that is more than one head's: of channels, and of heads that talk to each other."""
