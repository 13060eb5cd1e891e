"""Rewrite models of older versions of the standard for a newer one."""
