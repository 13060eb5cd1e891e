"""The convolution templates, and what they are made of."""
