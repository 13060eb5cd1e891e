"""Recurrent layers that are written out in small operators, step by step."""
