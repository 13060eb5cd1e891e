#include "code.h"

#include <stdint.h>
#include <string.h>

#include "error.h"

static void lend(void **variable, void (*function)(void)) {
  if (variable != NULL) memcpy(variable, &function, sizeof function);
}

/* Whether the entry point is a table of kernels of this version. */
static int has_table(const nc_image *image) {
  const char *entry = image->entry, *end = (const char *)image->base + image->size;
  return entry != NULL && (uintptr_t)entry % sizeof(void *) == 0 &&
         (size_t)(end - entry) >= sizeof(nc_kernel_table) &&
         ((const nc_kernel_table *)image->entry)->magic == NC_KERNEL_TABLE_MAGIC;
}

neocpu_status nc_code_load(const char *path, const void *bytes, size_t size, nc_code *code) {
  *code = (nc_code){0};
  const neocpu_status status = nc_image_load(path, bytes, size, &code->image);
  if (status != NEOCPU_OK) return status;
  if (!has_table(&code->image)) {
    nc_code_unload(code);
    return nc_fail(NEOCPU_ARTIFACT, "the code of %s does not name its kernels; compile the model "
                   "again with `neocpu compile`", path);
  }
  code->table = code->image.entry;
  lend(code->table->launch, (void (*)(void))nc_backend_launch);
  nc_code_lend_workspaces(code, nc_backend_allocate, nc_backend_release);
  return NEOCPU_OK;
}

void nc_code_lend_workspaces(const nc_code *code, nc_allocate *allocate, nc_release *release) {
  lend(code->table->allocate, (void (*)(void))allocate);
  lend(code->table->release, (void (*)(void))release);
}

const nc_kernel *nc_code_kernel(const nc_code *code, const char *name) {
  uint32_t low = 0, high = code->table->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const int order = strcmp(name, code->table->kernels[middle].name);
    if (order == 0) return &code->table->kernels[middle];
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}

void nc_code_unload(nc_code *code) {
  nc_image_free(&code->image);
  code->table = NULL;
}
