"""The command line: a file for each command, which is imported only when it is called."""
