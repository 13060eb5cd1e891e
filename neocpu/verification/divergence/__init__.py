"""A search for the operator at which an artifact departs from its model, or another artifact."""
