/* Threads of C that call a model of one input and one output, and compare what comes out. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "neocpu.h"

enum { MOST = 64 };

typedef struct work {
  neocpu_model *model;
  const void *input, *expected;
  size_t input_bytes, output_bytes;
  int calls, wrong;
} work;

static void *serve(void *data) {
  work *mine = data;
  const neocpu_input input = {mine->input, mine->input_bytes};
  neocpu_output output = {aligned_alloc(64, (mine->output_bytes + 63) / 64 * 64),
                          mine->output_bytes, 0};
  for (int i = 0; i < mine->calls; ++i) {
    memset(output.data, 0xff, mine->output_bytes);
    if (neocpu_run(mine->model, &input, 1, &output, 1) != NEOCPU_OK ||
        memcmp(output.data, mine->expected, mine->output_bytes) != 0) {
      ++mine->wrong;
    }
  }
  free(output.data);
  return NULL;
}

/* Call the model from so many threads, so often from each; return how often it was wrong. */
int call_from_threads(neocpu_model *model, const void *input, size_t input_bytes,
                      const void *expected, size_t output_bytes, int threads, int calls) {
  pthread_t started[MOST];
  work works[MOST];
  int wrong = 0;
  for (int i = 0; i < threads; ++i) {
    works[i] = (work){model, input, expected, input_bytes, output_bytes, calls, 0};
    pthread_create(&started[i], NULL, serve, &works[i]);
  }
  for (int i = 0; i < threads; ++i) {
    pthread_join(started[i], NULL);
    wrong += works[i].wrong;
  }
  return wrong;
}
