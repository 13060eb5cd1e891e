"""Batches without a plan of their own, composed of batches that have one."""
