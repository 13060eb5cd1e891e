"""Checks that refuse a model before anything is made of it."""
