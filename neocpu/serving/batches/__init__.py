"""Requests that are computed together."""
