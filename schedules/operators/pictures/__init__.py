"""Conversion of byte pictures to the float32 feature maps that a network reads."""
