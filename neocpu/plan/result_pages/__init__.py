"""Pages of results: tables, curves and figures that Python describes and a few scripts draw."""
