"""Where tensors lie: which need no memory or no kernel of their own, and when each is in use."""
