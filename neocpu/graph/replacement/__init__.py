"""Rules that replace operators by others that compute the same."""
