#include "memory.h"

#include <sys/mman.h>

#include "error.h"

static void *map(size_t size, int flags) {
  flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  madvise(memory, size, MADV_HUGEPAGE); /* fails on a kernel without them */
  return memory;
}

void *nc_memory_map(size_t size) { return map(size, 0); }

void *nc_memory_reserve(size_t size) { return map(size, MAP_NORESERVE); }

void nc_memory_unmap(void *memory, size_t size) {
  if (memory != NULL) munmap(memory, size);
}

neocpu_status nc_memory_missing(size_t size) {
  return nc_fail(NEOCPU_FAILURE, "out of memory: %zu bytes are needed", size);
}
