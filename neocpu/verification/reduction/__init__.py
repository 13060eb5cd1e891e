"""The reduction of a model that fails to the smallest part that still does."""
