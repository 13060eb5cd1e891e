#include "elf.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

enum { MAX_NAMES = 1 << 20 /* bytes of all section names */ };

static neocpu_status broken(const nc_file *file, const char *problem) {
  return nc_fail(NEOCPU_ARTIFACT,
                 "%s is not a complete neocpu artifact, %s; compile the model again with "
                 "`neocpu compile`",
                 file->path, problem);
}

/* A file that is no ELF file may be the model that an artifact has yet to be made of. */
static neocpu_status no_elf(const nc_file *file) {
  const char *dot = strrchr(file->path, '.');
  if (dot == NULL || strcmp(dot, ".onnx") != 0) return broken(file, "it is not an ELF file");
  return nc_fail(NEOCPU_ARTIFACT,
                 "%s is not a neocpu artifact, it is not an ELF file; compile the model first "
                 "with `neocpu compile`",
                 file->path);
}

static const char *machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86_64";
    case EM_AARCH64:
      return "aarch64";
    default:
      return "other";
  }
}

static neocpu_status read_header(const nc_file *file, Elf64_Ehdr *header) {
  if (file->size < SELFMAG) return no_elf(file);
  const size_t size = file->size < sizeof *header ? file->size : sizeof *header;
  const neocpu_status status = nc_file_read(file, 0, header, size);
  if (status != NEOCPU_OK) return status;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return no_elf(file);
  if (size < sizeof *header) return broken(file, "its ELF header is truncated");
  const unsigned char *ident = header->e_ident;
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB) {
    return broken(file, "it is not a 64-bit little-endian ELF file");
  }
  if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum == 0 ||
      header->e_shnum >= SHN_LORESERVE || header->e_shstrndx >= header->e_shnum) {
    return broken(file, "it has no section header table");
  }
  if (!nc_file_contains(file, header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr))) {
    return broken(file, "its section header table is missing: it is truncated");
  }
  return NEOCPU_OK;
}

static neocpu_status find(const nc_file *file, const Elf64_Shdr *headers, size_t header_count,
                          const Elf64_Shdr *names, nc_section *sections, size_t count) {
  if (!nc_file_contains(file, names->sh_offset, names->sh_size)) {
    return broken(file, "its section names are missing: it is truncated");
  }
  if (names->sh_size > MAX_NAMES) {
    return broken(file, "its section names take more than a mebibyte");
  }
  void *strings;
  const neocpu_status status = nc_file_read_new(file, names->sh_offset, names->sh_size, &strings);
  if (status != NEOCPU_OK) return status;
  int outside = 0;
  for (size_t i = 0; i < header_count; ++i) {
    const Elf64_Shdr *header = &headers[i];
    if (header->sh_type == SHT_NULL || header->sh_type == SHT_NOBITS) continue;
    outside |= !nc_file_contains(file, header->sh_offset, header->sh_size);
    const char *name = header->sh_name < names->sh_size ? (char *)strings + header->sh_name : "";
    for (size_t j = 0; j < count; ++j) {
      if (sections[j].found || strcmp(name, sections[j].name) != 0) continue;
      sections[j] = (nc_section){sections[j].name, header->sh_offset, header->sh_size, 1};
    }
  }
  free(strings);
  if (outside) return broken(file, "a section lies outside the file: it is truncated");
  return NEOCPU_OK;
}

neocpu_status nc_elf_read(const nc_file *file, nc_section *sections, size_t count,
                          const char **machine) {
  Elf64_Ehdr header;
  void *headers;
  neocpu_status status = read_header(file, &header);
  if (status != NEOCPU_OK) return status;
  status = nc_file_read_new(file, header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr), &headers);
  if (status != NEOCPU_OK) return status;
  *machine = machine_name(header.e_machine);
  const Elf64_Shdr *names = (const Elf64_Shdr *)headers + header.e_shstrndx;
  status = find(file, headers, header.e_shnum, names, sections, count);
  free(headers);
  return status;
}
