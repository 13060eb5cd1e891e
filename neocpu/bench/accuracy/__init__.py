"""How exact networks are, and what verification refuses."""
