"""Kernels that apply to feature maps what they first find of all their pixels."""
