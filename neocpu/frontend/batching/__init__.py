"""A model of one image as one of several."""
