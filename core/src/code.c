#include "code.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "error.h"
#include "kernel_sizes.h"

enum { MAX_NAME = 4096 /* bytes of a kernel's name, to look for its end */ };

static void lend(void **variable, void (*function)(void)) {
  if (variable != NULL) memcpy(variable, &function, sizeof function);
}

/* Whether so many elements lie in one segment, aligned. */
static int holds(const nc_image *image, const void *place, uint64_t count, size_t size) {
  if (count == 0) return 1;
  return (uintptr_t)place % size == 0 && nc_image_room(image, place, PROT_READ) / size >= count;
}

static int holds_text(const nc_image *image, const char *place) {
  const uint64_t room = nc_image_room(image, place, PROT_READ);
  return room > 0 && memchr(place, '\0', room < MAX_NAME ? room : MAX_NAME) != NULL;
}

static int holds_function(const nc_image *image, nc_kernel_function *function) {
  const void *place;
  memcpy(&place, &function, sizeof place);
  return nc_image_room(image, place, PROT_EXEC) > 0;
}

static int holds_variable(const nc_image *image, void **place) {
  const int aligned = (uintptr_t)place % sizeof *place == 0;
  return place == NULL ||
         (aligned && nc_image_room(image, place, PROT_WRITE) >= sizeof *place);
}

/* The entry point, if it is a table that begins with this word; else null. */
static const void *find_table(const nc_image *image, uint64_t magic, size_t size) {
  const uint64_t *table = image->entry;
  return holds(image, table, size / sizeof *table, sizeof *table) && *table == magic ? table : NULL;
}

static const nc_sized_kernel_table *find_sized_table(const nc_image *image) {
  return find_table(image, NC_SIZED_TABLE_MAGIC, sizeof(nc_sized_kernel_table));
}

/* Whether the entry point is a table of kernels of a version that is known. */
static int has_table(const nc_image *image) {
  return find_table(image, NC_KERNEL_TABLE_MAGIC, sizeof(nc_kernel_table)) != NULL ||
         find_sized_table(image) != NULL;
}

/* A sentence's end that says what is wrong with a kernel of the table; null if nothing is. */
static const char *kernel_problem(const nc_image *image, const nc_kernel *kernel) {
  const uint32_t count = kernel->count, loops = kernel->launch_count;
  if (!holds_text(image, kernel->name)) return "has its name outside the code";
  if (!holds_function(image, kernel->function)) return "has its function outside the code";
  if (!holds(image, kernel->sizes, count, sizeof *kernel->sizes)) {
    return "has its tensors' sizes outside the code";
  }
  if (!holds(image, kernel->types, count, sizeof *kernel->types)) {
    return "has its tensors' types outside the code";
  }
  if (!holds(image, kernel->launches, loops, sizeof *kernel->launches)) {
    return "has its loops outside the code";
  }
  return kernel->results > count ? "writes more tensors than it takes" : NULL;
}

/* The same of the table, but for its kernels. */
static const char *table_problem(const nc_image *image, const nc_kernel_table *table) {
  const size_t word = sizeof table->magic;
  if (!holds_variable(image, table->launch) || !holds_variable(image, table->allocate) ||
      !holds_variable(image, table->release)) {
    return "has variables outside the code";
  }
  if (table->count > UINT32_MAX ||
      !holds(image, table->kernels, table->count * (sizeof *table->kernels / word), word)) {
    return "has kernels outside the code";
  }
  return NULL;
}

/* Check once all that the runtime will follow. */
static neocpu_status check_table(const char *path, const nc_image *image) {
  const nc_kernel_table *table = image->entry;
  const char *problem = table_problem(image, table);
  char subject[32] = "its table of kernels";
  for (uint64_t i = 0; problem == NULL && i < table->count; ++i) {
    problem = kernel_problem(image, &table->kernels[i]);
    if (problem != NULL) snprintf(subject, sizeof subject, "its kernel %u", (unsigned)i);
  }
  if (problem == NULL) return NEOCPU_OK;
  return nc_fail(NEOCPU_ARTIFACT,
                 "cannot load the code of %s: %s %s; compile the model again with `neocpu compile`",
                 path, subject, problem);
}

/* Find the factors of all kernels, if the table has some. */
static neocpu_status find_factors(const char *path, nc_code *code) {
  const nc_sized_kernel_table *table = find_sized_table(&code->image);
  if (table == NULL) return NEOCPU_OK;
  code->factors = calloc(table->table.count + 1, sizeof *code->factors);
  if (code->factors == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory for the code");
  if (holds(&code->image, table->factors, table->factor_count, sizeof *table->factors) &&
      nc_factors_find(table, code->factors)) {
    return NEOCPU_OK;
  }
  return nc_fail(NEOCPU_ARTIFACT,
                 "cannot load the code of %s: its table of kernels has factors outside the code; "
                 "compile the model again with `neocpu compile`", path);
}

neocpu_status nc_code_load(const char *path, const void *bytes, size_t size, nc_code *code) {
  *code = (nc_code){0};
  neocpu_status status = nc_image_load(path, bytes, size, &code->image);
  if (status != NEOCPU_OK) return status;
  if (!has_table(&code->image)) {
    nc_code_unload(code);
    return nc_fail(NEOCPU_ARTIFACT, "the code of %s does not name its kernels; compile the model "
                   "again with `neocpu compile`", path);
  }
  status = check_table(path, &code->image);
  if (status == NEOCPU_OK) status = find_factors(path, code);
  if (status != NEOCPU_OK) {
    nc_code_unload(code);
    return status;
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

const uint32_t *nc_code_factors(const nc_code *code, const nc_kernel *kernel) {
  return code->factors == NULL ? NULL : code->factors[kernel - code->table->kernels];
}

void nc_code_unload(nc_code *code) {
  nc_image_free(&code->image);
  free(code->factors);
  code->factors = NULL;
  code->table = NULL;
}
