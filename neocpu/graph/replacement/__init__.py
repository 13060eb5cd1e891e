"""Operators in place of others that compute the same."""
