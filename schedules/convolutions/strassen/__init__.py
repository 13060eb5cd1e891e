"""1x1 convolutions by seven products in place of eight."""
