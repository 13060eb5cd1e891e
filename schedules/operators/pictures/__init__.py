"""Pictures of bytes as the float32 feature maps that a network reads."""
