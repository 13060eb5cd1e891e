/* reload MODEL N: load, run and free a model N times, several threads at once; then as often again.
 * Prints the resident kilobytes in between and at the end, and the threads left. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "neocpu.h"

enum { CALLERS = 4 };

static int status_field(const char *format) {
  char line[128];
  int value = -1;
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status) != NULL) sscanf(line, format, &value);
  fclose(status);
  return value;
}

static int once(const char *path, const neocpu_options *options) {
  neocpu_model *model;
  neocpu_output outputs[8] = {0};
  neocpu_input inputs[8] = {0};
  if (neocpu_load(path, options, &model) != NEOCPU_OK) return 0;
  const neocpu_description *description = neocpu_describe(model);
  for (size_t i = 0; i < description->input_count; ++i) {
    const size_t bytes = description->inputs[i].bytes;
    inputs[i] = (neocpu_input){calloc(1, bytes), bytes};
  }
  for (size_t i = 0; i < description->output_count; ++i) {
    const size_t bytes = description->outputs[i].bytes;
    outputs[i] = (neocpu_output){malloc(bytes), bytes, 0};
  }
  const neocpu_status status = neocpu_run(model, inputs, description->input_count, outputs,
                                          description->output_count);
  for (size_t i = 0; i < description->input_count; ++i) free((void *)inputs[i].data);
  for (size_t i = 0; i < description->output_count; ++i) free(outputs[i].data);
  neocpu_free(model);
  return status == NEOCPU_OK;
}

/* What one thread does. */
typedef struct work {
  const char *path;
  int times;
} work;

static void *repeat(void *data) {
  const work *mine = data;
  for (int i = 0; i < mine->times; ++i) {
    const neocpu_options options = {
        .threads = 1 + i % 3, .trust_weights = i % 2, .huge_pages = i / 2 % 2};
    if (!once(mine->path, &options)) {
      fprintf(stderr, "%s\n", neocpu_error());
      return data;
    }
  }
  return NULL;
}

/* Have CALLERS threads load at once; return whether all of them could. */
static int load_at_once(work mine) {
  pthread_t callers[CALLERS];
  void *failed, *any = NULL;
  for (int i = 0; i < CALLERS; ++i) pthread_create(&callers[i], NULL, repeat, &mine);
  for (int i = 0; i < CALLERS; ++i) {
    pthread_join(callers[i], &failed);
    if (failed != NULL) any = failed;
  }
  return any == NULL;
}

int main(int count, char **words) {
  const work mine = {words[1], count > 2 ? atoi(words[2]) / CALLERS : 0};
  if (!load_at_once(mine)) return 1;
  const int early = status_field("VmRSS: %d");
  if (!load_at_once(mine)) return 1;
  printf("%d %d %d\n", early, status_field("VmRSS: %d"), status_field("Threads: %d"));
  return 0;
}
