"""The convolution templates and their parts."""
