/* Inputs of random numbers, outputs, and runs from the ones to the others. */
#ifndef RANDOM_DATA_H_
#define RANDOM_DATA_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "neocpu.h"

enum { MAX_TENSORS = 4 };

typedef struct data {
  neocpu_input inputs[MAX_TENSORS];
  neocpu_output outputs[MAX_TENSORS];
} data;

/* Memory that kernels can read and write where it lies. */
static inline void *allocate(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

/* Fill an input's memory; return a seed for the next one. */
static inline unsigned fill(neocpu_input *input, void *memory, size_t bytes, unsigned seed) {
  float *values = memory;
  for (size_t i = 0; i < bytes / sizeof *values; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / (1 << 24) - 0.5f;
  }
  *input = (neocpu_input){values, bytes};
  return seed;
}

static inline int run(neocpu_model *model, data *with) {
  const neocpu_description *is = neocpu_describe(model);
  if (neocpu_run(model, with->inputs, is->input_count, with->outputs, is->output_count) ==
      NEOCPU_OK) {
    return 1;
  }
  fprintf(stderr, "%s\n", neocpu_error());
  return 0;
}

/* Whether all outputs are the same, bit for bit. */
static inline int equal(const neocpu_description *model, const data *one, const data *other) {
  for (size_t i = 0; i < model->output_count; ++i) {
    const neocpu_output *a = &one->outputs[i], *b = &other->outputs[i];
    if (memcmp(a->data, b->data, a->bytes) != 0) return 0;
  }
  return 1;
}

#endif
