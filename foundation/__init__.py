"""The base of every room: errors, files and the machine. It imports none of the others."""
