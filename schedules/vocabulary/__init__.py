"""The types that describe kernels: frozen dataclasses with stable keys."""
