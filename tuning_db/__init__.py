"""tuning_db."""
