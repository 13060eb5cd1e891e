/* headers BYTES-OF-WEIGHTS: read headers from the standard input, each behind its length in four
 * bytes, and print of each whether it was read. Programs of those whose calls choose sizes are read for
 * the least sizes, the largest and others, into as much memory as they say they take. */
#include <stdio.h>
#include <stdlib.h>

#include "src/sized_header.h"

enum { TRIES = 6, ROOM = 1 << 16 };

/* Sizes in their ranges. */
static void choose(const nc_sizes *sizes, unsigned seed, int64_t *chosen) {
  for (size_t i = 0; i < sizes->count; ++i) {
    const neocpu_size *one = &sizes->sizes[i];
    const uint64_t steps = (uint64_t)((one->most - one->least) / one->step);
    seed = seed * 1664525u + 1013904223u;
    chosen[i] = one->least + (int64_t)((seed >> 8) % (steps + 1)) * one->step;
  }
}

/* Read the program for a choice of sizes, and the extents, and say whether they are the same. */
static int bind(const nc_header *header, const int64_t *chosen, void *memory, int64_t *values) {
  static int64_t extents[ROOM];
  nc_program program;
  if (nc_sizes_check(&header->sizes, chosen, "it") != NEOCPU_OK) return 0;
  if (!nc_sizes_evaluate(&header->sizes, chosen, values)) return 1;
  if (nc_sized_header_bind(header, values, memory, &program) != NULL) return 1;
  if (nc_sized_header_extents(header, values, extents) != NULL) return 0;
  const int64_t *rest = extents;
  for (size_t i = 0; i < program.input_count; ++i) {
    for (size_t j = 0; j < program.inputs[i].rank; ++j) {
      if (*rest++ != program.inputs[i].shape[j]) return 0;
    }
  }
  return 1;
}

static int bind_some(const nc_header *header) {
  int64_t chosen[NC_MAX_SIZES];
  if (header->sizes.count == 0) return 1;
  void *memory = malloc(header->program_size);
  int64_t *values = malloc(nc_sizes_value_count(&header->sizes) * sizeof *values);
  int right = 1;
  for (unsigned i = 0; i < TRIES; ++i) {
    choose(&header->sizes, i, chosen);
    if (i == 0) nc_sizes_most(&header->sizes, chosen);
    if (i == 1) nc_sizes_typical(&header->sizes, chosen);
    right &= bind(header, chosen, memory, values);
  }
  free(memory);
  free(values);
  return right;
}

int main(int count, char **words) {
  const size_t weights = count > 1 ? strtoull(words[1], NULL, 10) : 0;
  uint32_t size;
  while (fread(&size, sizeof size, 1, stdin) == 1) {
    char *text = calloc(1, size + (size_t)1);
    if (text == NULL || fread(text, 1, size, stdin) != size) return 1;
    nc_header header;
    const int read = nc_header_read("stdin", text, size, weights, &header) == NEOCPU_OK;
    if (read && !bind_some(&header)) return 2;
    if (read) nc_header_free(&header);
    putchar(read ? 'y' : 'n');
  }
  return 0;
}
