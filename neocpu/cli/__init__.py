"""The command line: a file per command, each imported only when it is called."""
