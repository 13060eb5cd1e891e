"""Loop nests of convolutions in groups, depthwise ones among them."""
