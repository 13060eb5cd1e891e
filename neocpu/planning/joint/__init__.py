"""Joint plans of one network for several shapes, which share its weights."""
