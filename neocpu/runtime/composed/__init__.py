"""Batches that there is no plan for, put together of those that there is one for."""
