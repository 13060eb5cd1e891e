"""From a model that fails to the smallest part of it that still does."""
