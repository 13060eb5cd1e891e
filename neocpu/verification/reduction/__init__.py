"""The reduction of a failing model to the smallest part that still fails."""
