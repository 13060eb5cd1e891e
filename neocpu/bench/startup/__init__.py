"""How soon an artifact serves, and what a second process of it costs."""
