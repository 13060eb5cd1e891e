"""A served model, compared with direct calls of it."""
