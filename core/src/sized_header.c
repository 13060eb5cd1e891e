#include "sized_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "program_fields.h"

void nc_sized_header_read(nc_reader *r, const nc_json *root, nc_header *header) {
  static const char *const others[] = {"plans", "prologue", "repeats", "slices"};
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i) {
    if (nc_json_member(root, others[i]) != NULL) nc_wrong(r, others[i]);
  }
  nc_sizes_read(r, root, &header->sizes);
  if (r->wrong != NULL) return;
  const size_t count = nc_sizes_value_count(&header->sizes);
  int64_t *values = nc_new_array(r, count, sizeof *values), typical[NC_MAX_SIZES];
  nc_sizes_typical(&header->sizes, typical);
  if (!nc_sizes_evaluate(&header->sizes, typical, values)) {
    nc_wrong(r, "values");
    return;
  }
  header->program_count = 1;
  header->programs = nc_new_array(r, 1, sizeof *header->programs);
  const char *start = r->free;
  r->values = values;
  r->value_count = count;
  nc_program_read(r, root, header->weights_size, 1, header->programs);
  header->arena_bytes = header->programs->arena_bytes;
  header->program_size = (size_t)(r->free - start);
}

const char *nc_sized_header_bind(const nc_header *header, const int64_t *values, void *memory,
                                 nc_program *program) {
  nc_reader r = {.free = memory, .values = values,
                 .value_count = nc_sizes_value_count(&header->sizes)};
  memset(memory, 0, header->program_size);
  *program = (nc_program){0};
  nc_program_read(&r, header->root, header->weights_size, 1, program);
  return r.wrong;
}

/* The field that is malformed for the largest sizes, or null; else make room for their program. */
static const char *measure(nc_header *header, int64_t *values, void *memory) {
  int64_t most[NC_MAX_SIZES];
  nc_program largest;
  nc_sizes_most(&header->sizes, most);
  if (!nc_sizes_evaluate(&header->sizes, most, values)) return "values";
  const char *wrong = nc_sized_header_bind(header, values, memory, &largest);
  if (wrong != NULL) return wrong;
  if (largest.arena_bytes > header->arena_room) header->arena_room = largest.arena_bytes;
  for (size_t i = 0; i < largest.input_count; ++i) {
    const size_t bytes = largest.inputs[i].bytes;
    if (bytes > header->input_rooms[i]) header->input_rooms[i] = bytes;
  }
  return NULL;
}

neocpu_status nc_sized_header_measure(const char *path, nc_header *header) {
  int64_t *values = calloc(nc_sizes_value_count(&header->sizes), sizeof *values);
  void *memory = malloc(header->program_size);
  const int missing = values == NULL || memory == NULL;
  const char *wrong = missing ? NULL : measure(header, values, memory);
  free(values);
  free(memory);
  if (missing) return nc_fail(NEOCPU_FAILURE, "out of memory for the header of %s", path);
  return wrong == NULL ? NEOCPU_OK : nc_header_malformed(path, wrong);
}

/* Write the extents of inputs or outputs, and advance `extents` beyond them. */
static void write_extents(nc_reader *r, const nc_json *array, const char *field,
                          int64_t **extents) {
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < array->size && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    neocpu_spec spec;
    int64_t shape[NC_MAX_RANK];
    r->free = (char *)shape;
    nc_read_type(r, nc_json_member(item, "dtype"), nc_json_member(item, "shape"), field, &spec);
    if (r->wrong != NULL) return;
    memcpy(*extents, shape, spec.rank * sizeof *shape);
    *extents += spec.rank;
  }
}

const char *nc_sized_header_extents(const nc_header *header, const int64_t *values,
                                    int64_t *extents) {
  nc_reader r = {.values = values, .value_count = nc_sizes_value_count(&header->sizes)};
  write_extents(&r, nc_json_member(header->root, "inputs"), "inputs", &extents);
  write_extents(&r, nc_json_member(header->root, "outputs"), "outputs", &extents);
  return r.wrong;
}

neocpu_status nc_sized_header_malformed(const char *path, const nc_header *header,
                                        const int64_t *sizes, const char *field) {
  char text[NC_SIZES_TEXT], problem[NC_SIZES_TEXT + 64];
  nc_sizes_text(&header->sizes, sizes, text);
  snprintf(problem, sizeof problem, "%s, for %s", field, text);
  return nc_header_malformed(path, problem);
}
