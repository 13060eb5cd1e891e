"""What ``compile`` is asked to put before and after a model."""
