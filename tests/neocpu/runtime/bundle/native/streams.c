/* streams MODEL...: streams of a model called at once, after the model they were made of is freed:
 * every output is bit for bit that of a plain call. */
#include <pthread.h>
#include <stdlib.h>

#include "random_data.h"

enum { STREAMS = 3, CALLS = 20 };

typedef struct caller {
  neocpu_model *stream;
  data expected;
  int right;
} caller;

static data make(const neocpu_description *model, unsigned seed) {
  data made = {0};
  for (size_t i = 0; i < model->input_count; ++i) {
    const size_t bytes = model->inputs[i].bytes;
    seed = fill(&made.inputs[i], allocate(bytes), bytes, seed);
  }
  for (size_t i = 0; i < model->output_count; ++i) {
    const size_t bytes = model->outputs[i].bytes;
    made.outputs[i] = (neocpu_output){allocate(bytes), bytes, 0};
  }
  return made;
}

static void *call(void *argument) {
  caller *mine = argument;
  const neocpu_description *is = neocpu_describe(mine->stream);
  data got = mine->expected;
  for (size_t i = 0; i < is->output_count; ++i) got.outputs[i].data = allocate(got.outputs[i].bytes);
  mine->right = 1;
  for (int i = 0; i < CALLS; ++i) {
    mine->right &= run(mine->stream, &got);
    mine->right &= equal(is, &got, &mine->expected);
  }
  for (size_t i = 0; i < is->output_count; ++i) free(got.outputs[i].data);
  return NULL;
}

static int check(const char *path, int huge_pages) {
  const neocpu_options options = {.threads = 1, .huge_pages = huge_pages};
  neocpu_model *model;
  caller callers[STREAMS] = {0};
  pthread_t threads[STREAMS];
  int right = 1;
  if (neocpu_load(path, &options, &model) != NEOCPU_OK) return 0;
  for (int i = 0; i < STREAMS; ++i) {
    neocpu_model *of = i == 0 ? model : callers[i - 1].stream;
    if (neocpu_load_stream(of, &options, &callers[i].stream) != NEOCPU_OK) return 0;
    callers[i].expected = make(neocpu_describe(model), (unsigned)i);
    right &= run(model, &callers[i].expected);
  }
  neocpu_free(model);
  for (int i = 0; i < STREAMS; ++i) pthread_create(&threads[i], NULL, call, &callers[i]);
  for (int i = 0; i < STREAMS; ++i) {
    pthread_join(threads[i], NULL);
    const neocpu_description *is = neocpu_describe(callers[i].stream);
    for (size_t j = 0; j < is->input_count; ++j) free((void *)callers[i].expected.inputs[j].data);
    for (size_t j = 0; j < is->output_count; ++j) free(callers[i].expected.outputs[j].data);
    right &= callers[i].right;
    neocpu_free(callers[i].stream);
  }
  return right;
}

int main(int count, char **words) {
  neocpu_model *stream;
  if (neocpu_load_stream(NULL, NULL, &stream) != NEOCPU_USAGE || stream != NULL) return 1;
  for (int i = 1; i < count; ++i) {
    if (!check(words[i], 0) || !check(words[i], 1)) return 2;
  }
  return 0;
}
