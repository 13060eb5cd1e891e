/* threads MODEL...: many threads call several models at once; every output is bit for bit the first
 * one of its input. Prints threads and affinity before and after. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "random_data.h"

enum { CALLERS = 16, CALLS = 60, MAX_MODELS = 4, SEEDS = 3 };

static neocpu_model *models[MAX_MODELS];
static data expected[MAX_MODELS][SEEDS];
static int model_count;

static data make(const neocpu_description *model, unsigned seed) {
  data made = {0};
  for (size_t i = 0; i < model->input_count; ++i) {
    const size_t bytes = model->inputs[i].bytes;
    seed = fill(&made.inputs[i], malloc(bytes), bytes, seed);
  }
  for (size_t i = 0; i < model->output_count; ++i) {
    made.outputs[i] = (neocpu_output){malloc(model->outputs[i].bytes), model->outputs[i].bytes, 0};
  }
  return made;
}

static void discard(const neocpu_description *model, data *made) {
  for (size_t i = 0; i < model->input_count; ++i) free((void *)made->inputs[i].data);
  for (size_t i = 0; i < model->output_count; ++i) free(made->outputs[i].data);
}

static void *call(void *number) {
  for (unsigned i = 0; i < CALLS; ++i) {
    const unsigned m = i % (unsigned)model_count, seed = (i + (unsigned)(size_t)number) % SEEDS;
    const neocpu_description *model = neocpu_describe(models[m]);
    data mine = make(model, seed);
    const int right = run(models[m], &mine) && equal(model, &mine, &expected[m][seed]);
    discard(model, &mine);
    if (!right) return (void *)1;
  }
  return NULL;
}

static int thread_count(void) {
  char line[128];
  int count = -1;
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status) != NULL) sscanf(line, "Threads: %d", &count);
  fclose(status);
  return count;
}

int main(int count, char **words) {
  pthread_t callers[CALLERS];
  cpu_set_t before, after;
  void *wrong, *any = NULL;
  sched_getaffinity(0, sizeof before, &before);
  model_count = count - 1;
  for (int m = 0; m < model_count; ++m) {
    if (neocpu_load(words[m + 1], NULL, &models[m]) != NEOCPU_OK) {
      fprintf(stderr, "%s\n", neocpu_error());
      return 1;
    }
    for (unsigned seed = 0; seed < SEEDS; ++seed) {
      expected[m][seed] = make(neocpu_describe(models[m]), seed);
      if (!run(models[m], &expected[m][seed])) return 1;
    }
  }
  const int loaded = thread_count();
  for (size_t i = 0; i < CALLERS; ++i) pthread_create(&callers[i], NULL, call, (void *)i);
  for (size_t i = 0; i < CALLERS; ++i) {
    pthread_join(callers[i], &wrong);
    if (wrong != NULL) any = wrong;
  }
  sched_getaffinity(0, sizeof after, &after);
  printf("threads %d %d\n", loaded, thread_count());
  for (int m = 0; m < model_count; ++m) {
    for (int seed = 0; seed < SEEDS; ++seed) {
      discard(neocpu_describe(models[m]), &expected[m][seed]);
    }
    neocpu_free(models[m]);
  }
  printf("wrong %d affinity %d\n", any != NULL, !CPU_EQUAL(&before, &after));
  printf("left %d\n", thread_count());
  return 0;
}
