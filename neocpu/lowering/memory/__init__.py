"""The places of tensors in memory, and the calls that need no memory or no kernel of their own."""
