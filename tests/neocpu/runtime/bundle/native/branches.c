/* branches MODEL: run a model of a float input and a bool one, on each value of the latter. Prints
 * how many calls were made for true and for false, and how many there are that were ever made;
 * exits with the number of the first expectation that does not hold. */
#include <stdio.h>
#include <stdlib.h>

#include "neocpu.h"

enum { CALLS = 1024 };

int main(int count, char **words) {
  neocpu_model *model;
  size_t made[2] = {0}, all = 0;
  char seen[CALLS] = {0};
  if (count < 2) return 99;
  const neocpu_options options = {.threads = 1};
  if (neocpu_load(words[1], &options, &model) != NEOCPU_OK) return 1;
  const neocpu_description *is = neocpu_describe(model);
  float *x = calloc(1, is->inputs[0].bytes), *y = malloc(is->outputs[0].bytes);
  for (int value = 0; value < 2; ++value) {
    const char flag = (char)value;
    const neocpu_event *events;
    size_t noted;
    const neocpu_input inputs[] = {{x, is->inputs[0].bytes}, {&flag, 1}};
    neocpu_output output = {y, is->outputs[0].bytes, 0};
    if (neocpu_trace_start(model) != NEOCPU_OK) return 2;
    if (neocpu_run(model, inputs, 2, &output, 1) != NEOCPU_OK) return 3;
    if (neocpu_trace_stop(model, &events, &noted) != NEOCPU_OK) return 4;
    for (size_t i = 0; i < noted; ++i) {
      if (events[i].call < 0 || events[i].task >= 0) continue;
      if (events[i].call >= CALLS) return 5;
      ++made[value];
      all += !seen[events[i].call];
      seen[events[i].call] = 1;
    }
  }
  printf("%zu %zu %zu\n", made[1], made[0], all);
  neocpu_free(model);
  free(x), free(y);
  return 0;
}
