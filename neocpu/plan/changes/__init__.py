"""Two artifacts of one model side by side: what was decided otherwise, and what that bought."""
