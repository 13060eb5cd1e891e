"""What every room stands on: errors, files and the machine. It imports none of the others."""
