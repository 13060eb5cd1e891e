"""The processing that ``compile`` puts before and after a model."""
