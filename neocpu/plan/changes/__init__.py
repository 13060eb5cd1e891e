"""A comparison of two artifacts of one model: the decisions that differ, and the time they save."""
