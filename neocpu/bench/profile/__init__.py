"""Every operator's time inside a running network."""
