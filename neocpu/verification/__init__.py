"""Wrong outputs: found by a reference, traced to an operator, reduced to a small model."""
