"""An artifact as a file: ELF sections, digests, a header of strict JSON; several in one file."""
