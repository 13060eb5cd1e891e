#include "image.h"

#include <elf.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64, RELATIVE = R_X86_64_RELATIVE, ABSOLUTE = R_X86_64_64 };
enum { DATA = R_X86_64_GLOB_DAT, JUMP = R_X86_64_JUMP_SLOT };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64, RELATIVE = R_AARCH64_RELATIVE, ABSOLUTE = R_AARCH64_ABS64 };
enum { DATA = R_AARCH64_GLOB_DAT, JUMP = R_AARCH64_JUMP_SLOT };
#endif

/* The bytes of code and constants, far more than any network needs. */
static const uint64_t MAX_SIZE = (uint64_t)1 << 32;

typedef void function(void);

/* The functions that generated code may call: LLVM makes them of loops that copy, and of operations
 * that no instruction computes. */
#define FUNCTION(name) {#name, (function *)name}
#define REAL(name) FUNCTION(name), FUNCTION(name##f)
/* clang-format off */
static const struct {
  const char *name;
  function *place;
} functions[] = {
    FUNCTION(memcpy), FUNCTION(memmove), FUNCTION(memset), FUNCTION(memcmp),
    REAL(acos), REAL(acosh), REAL(asin), REAL(asinh), REAL(atan), REAL(atan2), REAL(atanh),
    REAL(cbrt), REAL(ceil), REAL(copysign), REAL(cos), REAL(cosh), REAL(erf), REAL(erfc), REAL(exp),
    REAL(exp10), REAL(exp2), REAL(expm1), REAL(fabs), REAL(floor), REAL(fma), REAL(fmax),
    REAL(fmin), REAL(fmod), REAL(hypot), REAL(ldexp), REAL(lgamma), REAL(log), REAL(log10),
    REAL(log1p), REAL(log2), REAL(nearbyint), REAL(nextafter), REAL(pow), REAL(rint), REAL(round),
    REAL(sin), REAL(sincos), REAL(sinh), REAL(sqrt), REAL(tan), REAL(tanh), REAL(tgamma),
    REAL(trunc)};
/* clang-format on */

/* The object while it is loaded. Addresses count from its own zero. */
typedef struct object {
  const char *path;
  const uint8_t *bytes;
  size_t size;
  const Elf64_Phdr *segments;
  size_t segment_count;
  char *base; /* the place of address zero */
  uint64_t span;
  /* Entries of the dynamic section; 0: it has none. */
  uint64_t symbols, strings, strings_size;
  struct {
    uint64_t start, size;
  } relocations[2], relative;
} object;

static neocpu_status refuse(const object *o, const char *problem) {
  return nc_fail(NEOCPU_ARTIFACT,
                 "cannot load the code of %s: %s; compile the model again with `neocpu compile`",
                 o->path, problem);
}

static int contains(const object *o, uint64_t start, uint64_t size) {
  return start <= o->span && size <= o->span - start;
}

static neocpu_status read_segments(object *o) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)o->bytes;
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  if (o->size < sizeof *header || header->e_type != ET_DYN || header->e_machine != MACHINE ||
      header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phoff % 8 != 0 ||
      header->e_phoff > o->size ||
      header->e_phnum > (o->size - header->e_phoff) / sizeof(Elf64_Phdr)) {
    return refuse(o, "it is no shared object of this machine");
  }
  o->segments = (const Elf64_Phdr *)(o->bytes + header->e_phoff);
  o->segment_count = header->e_phnum;
  uint64_t end = 0;
  size_t loaded = 0;
  for (size_t i = 0; i < o->segment_count; ++i) {
    const Elf64_Phdr *segment = &o->segments[i];
    if (segment->p_type == PT_TLS) return refuse(o, "it has variables of threads");
    if (segment->p_type != PT_LOAD) continue;
    if (++loaded > NC_MAX_SEGMENTS) return refuse(o, "it has too many segments");
    if (segment->p_vaddr > MAX_SIZE || segment->p_memsz > MAX_SIZE ||
        segment->p_filesz > segment->p_memsz || segment->p_offset > o->size ||
        segment->p_filesz > o->size - segment->p_offset || segment->p_vaddr / page * page < end ||
        (segment->p_flags & (PF_W | PF_X)) == (PF_W | PF_X)) {
      return refuse(o, "a segment is out of order");
    }
    end = (segment->p_vaddr + segment->p_memsz + page - 1) / page * page;
  }
  o->span = end;
  return end > 0 ? NEOCPU_OK : refuse(o, "it has no segment");
}

static neocpu_status copy_segments(object *o) {
  void *memory =
      mmap(NULL, o->span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return nc_fail(NEOCPU_FAILURE, "out of memory for the code of %s", o->path);
  }
  o->base = memory;
  for (size_t i = 0; i < o->segment_count; ++i) {
    const Elf64_Phdr *segment = &o->segments[i];
    if (segment->p_type != PT_LOAD) continue;
    memcpy(o->base + segment->p_vaddr, o->bytes + segment->p_offset, segment->p_filesz);
  }
  return NEOCPU_OK;
}

static neocpu_status read_dynamic(object *o) {
  const Elf64_Phdr *found = NULL;
  for (size_t i = 0; i < o->segment_count; ++i) {
    if (o->segments[i].p_type == PT_DYNAMIC) found = &o->segments[i];
  }
  if (found == NULL || found->p_vaddr % 8 != 0 || !contains(o, found->p_vaddr, found->p_memsz)) {
    return refuse(o, "it has no dynamic section");
  }
  const Elf64_Dyn *entry = (const Elf64_Dyn *)(o->base + found->p_vaddr);
  const Elf64_Dyn *end = entry + found->p_memsz / sizeof *entry;
  for (; entry < end && entry->d_tag != DT_NULL; ++entry) {
    const uint64_t value = entry->d_un.d_val;
    switch (entry->d_tag) {
      case DT_SYMTAB: o->symbols = value; break;
      case DT_STRTAB: o->strings = value; break;
      case DT_STRSZ: o->strings_size = value; break;
      case DT_RELA: o->relocations[0].start = value; break;
      case DT_RELASZ: o->relocations[0].size = value; break;
      case DT_JMPREL: o->relocations[1].start = value; break;
      case DT_PLTRELSZ: o->relocations[1].size = value; break;
      case 36 /* DT_RELR */: o->relative.start = value; break;
      case 35 /* DT_RELRSZ */: o->relative.size = value; break;
      case DT_REL: case DT_TEXTREL: return refuse(o, "it is not position-independent");
      default: break;
    }
  }
  if (!contains(o, o->strings, o->strings_size) || o->strings_size == 0 ||
      o->base[o->strings + o->strings_size - 1] != '\0') {
    return refuse(o, "its names are out of order");
  }
  return NEOCPU_OK;
}

/* Add the base to a word. */
static neocpu_status rebase(object *o, uint64_t place) {
  uint64_t value;
  if (!contains(o, place, sizeof value)) return refuse(o, "a relocation lies outside");
  memcpy(&value, o->base + place, sizeof value);
  value += (uintptr_t)o->base;
  memcpy(o->base + place, &value, sizeof value);
  return NEOCPU_OK;
}

/* Relocations by the base, packed (DT_RELR): an address, then bitmaps of the 63 words behind. */
static neocpu_status relocate_packed(object *o) {
  uint64_t entry, place = 0;
  if (!contains(o, o->relative.start, o->relative.size)) return refuse(o, "a table lies outside");
  for (uint64_t i = 0; i < o->relative.size / sizeof entry; ++i) {
    memcpy(&entry, o->base + o->relative.start + i * sizeof entry, sizeof entry);
    neocpu_status status = NEOCPU_OK;
    if ((entry & 1) == 0) {
      status = rebase(o, entry);
      place = entry + sizeof entry;
    } else {
      for (int bit = 1; bit < 64 && status == NEOCPU_OK; ++bit) {
        if (entry >> bit & 1) status = rebase(o, place + (uint64_t)(bit - 1) * sizeof entry);
      }
      place += 63 * sizeof entry;
    }
    if (status != NEOCPU_OK) return status;
  }
  return NEOCPU_OK;
}

/* The address of a symbol: of the object's own, or of a function of the C library. */
static neocpu_status find_symbol(const object *o, uint64_t index, uint64_t *address) {
  Elf64_Sym symbol;
  if (index > MAX_SIZE || !contains(o, o->symbols + index * sizeof symbol, sizeof symbol)) {
    return refuse(o, "a symbol lies outside");
  }
  memcpy(&symbol, o->base + o->symbols + index * sizeof symbol, sizeof symbol);
  if (symbol.st_shndx != SHN_UNDEF) {
    if (symbol.st_value > o->span) return refuse(o, "a symbol lies outside");
    *address = (uintptr_t)o->base + symbol.st_value;
    return NEOCPU_OK;
  }
  if (symbol.st_name >= o->strings_size) return refuse(o, "a symbol's name lies outside");
  const char *name = o->base + o->strings + symbol.st_name;
  /* A relocation may have overwritten the end of the names. */
  const size_t room = o->strings_size - symbol.st_name;
  if (memchr(name, '\0', room) == NULL) return refuse(o, "a symbol's name lies outside");
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
    if (strcmp(functions[i].name, name) != 0) continue;
    *address = (uintptr_t)functions[i].place;
    return NEOCPU_OK;
  }
  *address = 0;
  if (ELF64_ST_BIND(symbol.st_info) == STB_WEAK) return NEOCPU_OK;
  return nc_fail(NEOCPU_ARTIFACT,
                 "the code of %s calls '%s', which this runtime does not have: use a newer one",
                 o->path, name);
}

static neocpu_status relocate_table(object *o, uint64_t start, uint64_t size) {
  if (!contains(o, start, size)) return refuse(o, "a table lies outside");
  for (uint64_t i = 0; i < size / sizeof(Elf64_Rela); ++i) {
    Elf64_Rela entry;
    memcpy(&entry, o->base + start + i * sizeof entry, sizeof entry);
    const uint32_t type = ELF64_R_TYPE(entry.r_info);
    uint64_t value = (uintptr_t)o->base;
    if (!contains(o, entry.r_offset, sizeof value)) return refuse(o, "a relocation lies outside");
    if (type != RELATIVE) {
      if (type != ABSOLUTE && type != DATA && type != JUMP) {
        return refuse(o, "a relocation is of an unknown type");
      }
      const neocpu_status status = find_symbol(o, ELF64_R_SYM(entry.r_info), &value);
      if (status != NEOCPU_OK) return status;
    }
    if (type == RELATIVE || type == ABSOLUTE) value += (uint64_t)entry.r_addend;
    memcpy(o->base + entry.r_offset, &value, sizeof value);
  }
  return NEOCPU_OK;
}

/* Give the segments their access, and remember them. */
static neocpu_status protect(const object *o, nc_image *image) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < o->segment_count; ++i) {
    const Elf64_Phdr *segment = &o->segments[i];
    if (segment->p_type != PT_LOAD) continue;
    char *start = o->base + segment->p_vaddr / page * page;
    char *end = o->base + segment->p_vaddr + segment->p_memsz;
    const int executable = segment->p_flags & PF_X;
    const int more = executable ? PROT_EXEC : segment->p_flags & PF_W ? PROT_WRITE : 0;
    const int access = PROT_READ | more;
    image->segments[image->segment_count++] =
        (nc_segment){(uintptr_t)o->base + segment->p_vaddr, segment->p_memsz, access};
    if (executable) __builtin___clear_cache(start, end);
    if (mprotect(start, (size_t)(end - start), access) != 0) {
      return nc_fail(NEOCPU_FAILURE, "cannot make the code of %s executable: %s", o->path,
                     strerror(errno));
    }
  }
  return NEOCPU_OK;
}

neocpu_status nc_image_load(const char *path, const void *bytes, size_t size, nc_image *image) {
  object o = {.path = path, .bytes = bytes, .size = size};
  *image = (nc_image){0};
  neocpu_status status = read_segments(&o);
  if (status == NEOCPU_OK) status = copy_segments(&o);
  if (status != NEOCPU_OK) return status;
  *image = (nc_image){.base = o.base, .size = o.span};
  status = read_dynamic(&o);
  if (status == NEOCPU_OK) status = relocate_packed(&o);
  for (int i = 0; i < 2 && status == NEOCPU_OK; ++i) {
    status = relocate_table(&o, o.relocations[i].start, o.relocations[i].size);
  }
  const uint64_t entry = ((const Elf64_Ehdr *)bytes)->e_entry;
  if (status == NEOCPU_OK && entry < o.span) image->entry = o.base + entry;
  if (status == NEOCPU_OK) status = protect(&o, image);
  if (status != NEOCPU_OK) nc_image_free(image);
  return status;
}

uint64_t nc_image_room(const nc_image *image, const void *place, int access) {
  for (size_t i = 0; i < image->segment_count; ++i) {
    const nc_segment *segment = &image->segments[i];
    const uint64_t before = (uintptr_t)place - segment->start;
    if ((uintptr_t)place >= segment->start && before < segment->size) {
      return (segment->access & access) == access ? segment->size - before : 0;
    }
  }
  return 0;
}

void nc_image_free(nc_image *image) {
  if (image->base != NULL) munmap(image->base, image->size);
  *image = (nc_image){0};
}
