/* Runs each signature of a model of one input and two outputs by its inputs' bytes, and by number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "neocpu.h"

int main(int count, char **words) {
  neocpu_model *model;
  if (count != 2 || neocpu_load(words[1], NULL, &model) != NEOCPU_OK) return 1;
  const neocpu_description *is = neocpu_describe(model);
  for (size_t i = 0; i < is->signature_count; ++i) {
    const neocpu_signature *mine = &is->signatures[i];
    char *x = calloc(1, mine->inputs[0].bytes + 4);
    neocpu_input input = {x + 4, mine->inputs[0].bytes}; /* where kernels cannot read it */
    neocpu_output outputs[2];
    for (size_t j = 0; j < 2; ++j) {
      const size_t bytes = mine->outputs[j].bytes;
      outputs[j] = (neocpu_output){calloc(1, bytes), bytes, 0};
    }
    const neocpu_status status = neocpu_run(model, &input, 1, outputs, 2);
    if (status == NEOCPU_OK) printf("%zu: runs\n", i);
    if (status != NEOCPU_OK) printf("%zu: say which: %s\n", i, neocpu_error());
    if (neocpu_run_signature(model, i, &input, 1, outputs, 2) != NEOCPU_OK) return 1;
    neocpu_output others[2];
    for (size_t j = 0; j < 2; ++j) {
      others[j] = (neocpu_output){calloc(1, outputs[j].bytes), outputs[j].bytes, 0};
    }
    neocpu_job *job;
    if (neocpu_submit_signature(model, i, &input, 1, others, 2, &job) != NEOCPU_OK) return 1;
    if (neocpu_wait(job) != NEOCPU_OK) return 1;
    for (size_t j = 0; j < 2; ++j) {
      if (memcmp(outputs[j].data, others[j].data, others[j].bytes) != 0) return 1;
      free(others[j].data);
    }
    free(x);
    for (size_t j = 0; j < 2; ++j) free(outputs[j].data);
  }
  neocpu_input other = {&count, sizeof count};
  neocpu_output outputs[2] = {{&count, sizeof count, 0}, {&count, sizeof count, 0}};
  if (neocpu_run(model, &other, 1, outputs, 2) != NEOCPU_USAGE) return 1;
  puts(neocpu_error());
  const size_t none = is->signature_count;
  if (neocpu_run_signature(model, none, &other, 1, outputs, 2) != NEOCPU_USAGE) return 1;
  puts(neocpu_error());
  neocpu_job *job;
  if (neocpu_submit_signature(model, none, &other, 1, outputs, 2, &job) != NEOCPU_USAGE) return 1;
  if (job != NULL || neocpu_submit_signature(model, 0, &other, 1, outputs, 2, NULL) == NEOCPU_OK) {
    return 1;
  }
  neocpu_free(model);
  return 0;
}
