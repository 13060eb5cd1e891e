/* The part of ELF that an artifact needs: find sections by name. */
#ifndef NEOCPU_ELF_H_
#define NEOCPU_ELF_H_

#include "file.h"

typedef struct nc_section {
  const char *name;
  uint64_t offset; /* bytes */
  uint64_t size;
  int found;
} nc_section;

/* Find sections in a 64-bit little-endian ELF file, and name its machine as uname does ("other" if
 * it is none of ours). */
neocpu_status nc_elf_read(const nc_file *file, nc_section *sections, size_t count,
                          const char **machine);

#endif
