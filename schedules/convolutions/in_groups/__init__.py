"""Loop nests of grouped and depthwise convolutions."""
