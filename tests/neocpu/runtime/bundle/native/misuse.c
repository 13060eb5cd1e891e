/* misuse MODEL: what a caller may get wrong is told, not punished. Exits with the number of the
 * first expectation that does not hold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "neocpu.h"

#define EXPECT(number, status, call)                                                     \
  do {                                                                                   \
    if ((call) != (status)) return printf("%s\n", neocpu_error()), number;               \
    if ((status) != NEOCPU_OK) printf("%s\n", neocpu_error());                           \
  } while (0)

int main(int count, char **words) {
  neocpu_model *model;
  if (count < 2) return 99;
  EXPECT(1, NEOCPU_USAGE, neocpu_load(words[1], &(neocpu_options){.threads = -1}, &model));
  if (model != NULL) return 2;
  EXPECT(18, NEOCPU_USAGE, neocpu_load(NULL, NULL, &model));
  EXPECT(19, NEOCPU_USAGE, neocpu_run(model, NULL, 0, NULL, 0));
  EXPECT(20, NEOCPU_USAGE, neocpu_load(words[1], NULL, NULL));
  if (neocpu_describe(NULL) != NULL) return 21;
  EXPECT(4, NEOCPU_ARTIFACT, neocpu_load("/nowhere/model.so", NULL, &model));
  EXPECT(5, NEOCPU_OK, neocpu_load(words[1], NULL, &model));
  neocpu_free(NULL);
  const neocpu_description *description = neocpu_describe(model);
  const size_t in = description->inputs[0].bytes, out = description->outputs[0].bytes;
  char *x = aligned_alloc(128, in + 128), *y = malloc(out), *z = malloc(out);
  memset(x, 0, in + 128);
  neocpu_input input = {x, in};
  neocpu_output output = {y, out, 0};
  EXPECT(6, NEOCPU_USAGE, neocpu_run(model, &input, 2, &output, 1));
  EXPECT(7, NEOCPU_USAGE, neocpu_run(model, &input, 1, &output, 0));
  EXPECT(22, NEOCPU_USAGE, neocpu_run(model, NULL, 1, &output, 1));
  EXPECT(23, NEOCPU_USAGE, neocpu_run(model, &input, 1, NULL, 1));
  input.bytes = in - 4;
  EXPECT(8, NEOCPU_USAGE, neocpu_run(model, &input, 1, &output, 1));
  input = (neocpu_input){NULL, in};
  EXPECT(9, NEOCPU_USAGE, neocpu_run(model, &input, 1, &output, 1));
  input.data = x;
  output.bytes = out - 1;
  EXPECT(10, NEOCPU_USAGE, neocpu_run(model, &input, 1, &output, 1));
  output.bytes = out;
  EXPECT(11, NEOCPU_OK, neocpu_run(model, &input, 1, &output, 1));
  /* The same from a place that kernels cannot read, and with the output over the input. */
  memcpy(z, y, out);
  memset(y, 1, out);
  input.data = x + 4;
  EXPECT(12, NEOCPU_OK, neocpu_run(model, &input, 1, &output, 1));
  if (memcmp(y, z, out) != 0) return 13;
  input.data = x;
  output.data = x;
  if (out <= in) EXPECT(14, NEOCPU_OK, neocpu_run(model, &input, 1, &output, 1));
  if (out <= in && memcmp(x, z, out) != 0) return 15;
  output.data = y;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const neocpu_status status = neocpu_run(model, &input, 1, &output, 1);
    printf("%s\n", neocpu_error());
    neocpu_free(model);
    fflush(stdout);
    _exit(status == NEOCPU_USAGE ? 0 : 1);
  }
  int outcome;
  waitpid(child, &outcome, 0);
  if (outcome != 0) return 16;
  EXPECT(17, NEOCPU_OK, neocpu_run(model, &input, 1, &output, 1));
  neocpu_free(model);
  free(x), free(y), free(z);
  return 0;
}
