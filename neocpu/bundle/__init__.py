"""Write a folder from which a compiled model is built into a C or C++ program."""
