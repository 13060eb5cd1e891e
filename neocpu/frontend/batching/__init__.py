"""Change a model of one image into a model of several."""
