/* sharing MODEL...: models that share a pool, jobs, and models in memory: every output is bit for
 * bit that of a plain call. Prints how many jobs were cancelled. */
#include <stdio.h>
#include <stdlib.h>

#include "random_data.h"

enum { JOBS = 40 };

static data make(const neocpu_description *model, unsigned seed) {
  data made = {0};
  for (size_t i = 0; i < model->input_count; ++i) {
    const size_t bytes = model->inputs[i].bytes;
    seed = fill(&made.inputs[i], allocate(bytes), bytes, seed);
  }
  for (size_t i = 0; i < model->output_count; ++i) {
    const size_t bytes = model->outputs[i].bytes;
    /* Some where kernels can write, some not. */
    char *place = allocate(bytes + 4);
    made.outputs[i] = (neocpu_output){place + (seed % 2 ? 4 : 0), bytes, 0};
  }
  return made;
}

static void discard(const neocpu_description *model, data *made) {
  for (size_t i = 0; i < model->input_count; ++i) free((void *)made->inputs[i].data);
  for (size_t i = 0; i < model->output_count; ++i) {
    free((void *)((size_t)made->outputs[i].data / 64 * 64));
  }
}

/* Submit many calls; every third is cancelled if it can be. */
static int submit(neocpu_model *model, int *cancelled) {
  const neocpu_description *is = neocpu_describe(model);
  data calls[JOBS], expected[JOBS];
  neocpu_job *jobs[JOBS];
  int right = 1;
  for (unsigned i = 0; i < JOBS; ++i) {
    expected[i] = make(is, i);
    calls[i] = make(is, i);
    if (!run(model, &expected[i])) return 0;
  }
  for (int i = 0; i < JOBS; ++i) {
    if (neocpu_submit(model, calls[i].inputs, is->input_count, calls[i].outputs, is->output_count,
                      &jobs[i]) != NEOCPU_OK) {
      return 0;
    }
  }
  for (int i = JOBS - 1; i >= 0; --i) {
    if (i % 3 == 0 && neocpu_cancel(jobs[i])) {
      ++*cancelled;
    } else {
      right &= neocpu_wait(jobs[i]) == NEOCPU_OK && equal(is, &calls[i], &expected[i]);
    }
  }
  for (int i = 0; i < JOBS; ++i) discard(is, &calls[i]), discard(is, &expected[i]);
  return right;
}

/* The same file in memory, `shift` bytes from a multiple of 128. */
static int load_memory(const char *path, size_t shift, neocpu_model *like) {
  FILE *file = fopen(path, "rb");
  fseek(file, 0, SEEK_END);
  const size_t size = (size_t)ftell(file);
  char *memory = aligned_alloc(128, (size + shift + 127) / 128 * 128);
  rewind(file);
  neocpu_model *model = NULL;
  if (fread(memory + shift, 1, size, file) != size ||
      neocpu_open_memory(memory + shift, size, NULL, &model) != NEOCPU_OK) {
    return 0;
  }
  fclose(file);
  const neocpu_description *is = neocpu_describe(model);
  data mine = make(is, 7), expected = make(is, 7);
  const int right = run(model, &mine) && run(like, &expected) && equal(is, &mine, &expected);
  discard(is, &mine), discard(is, &expected);
  neocpu_free(model);
  /* Memory that is cut short is refused. */
  const int refused = neocpu_open_memory(memory + shift, size - 1, NULL, &model) == NEOCPU_ARTIFACT;
  free(memory);
  return right && refused;
}

int main(int count, char **words) {
  neocpu_pool *pool;
  neocpu_model *models[8];
  int cancelled = 0;
  if (neocpu_pool_start(2, 0, &pool) != NEOCPU_OK) return 1;
  const neocpu_options options = {.pool = pool};
  for (int i = 1; i < count; ++i) {
    if (neocpu_load(words[i], &options, &models[i]) != NEOCPU_OK) return 2;
  }
  neocpu_pool_free(pool); /* the models keep it */
  for (int i = 1; i < count; ++i) {
    if (!submit(models[i], &cancelled)) return 3;
    if (!load_memory(words[i], 0, models[i]) || !load_memory(words[i], 4, models[i])) return 4;
  }
  for (int i = 1; i < count; ++i) neocpu_free(models[i]);
  if (neocpu_wait(NULL) != NEOCPU_USAGE || neocpu_cancel(NULL) != 0) return 5;
  printf("%d\n", cancelled);
  return 0;
}
