"""Checks that refuse a model before it is compiled."""
