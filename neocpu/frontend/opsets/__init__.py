"""Models of older versions of the standard, written in operators of a newer one."""
