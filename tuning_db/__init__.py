"""Tuning records and the database that keeps them."""
