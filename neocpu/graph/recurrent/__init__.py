"""Recurrent layers that models write out as small operators, step by step."""
