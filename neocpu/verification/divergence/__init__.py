"""Where what an artifact computes parts from its model, or from another artifact of it."""
