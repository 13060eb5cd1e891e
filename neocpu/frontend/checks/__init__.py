"""What of a model is refused before anything is made of it."""
