"""Requests that are computed jointly."""
