"""1x1 convolutions with seven products instead of eight."""
