/* trace MODEL THREADS: what is noted of runs that two threads make in turn, beside some that are
 * not noted. Everything lies within what contains it, a thread does one thing at a time, and outputs
 * stay as they are. Prints how many runs, calls, tasks and threads there were; exits with the number
 * of the first expectation that does not hold. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "neocpu.h"

enum { CALLERS = 2, RUNS = 20, THREADS = 16 };

static neocpu_model *model;
static neocpu_input input;
static const void *expected;
static size_t bytes;

static void *call(void *unused) {
  (void)unused;
  char *y = aligned_alloc(64, (bytes + 63) / 64 * 64);
  neocpu_output output = {y, bytes, 0};
  int wrong = 0;
  for (int i = 0; i < RUNS; ++i) {
    wrong |= neocpu_run(model, &input, 1, &output, 1) != NEOCPU_OK || memcmp(y, expected, bytes);
  }
  free(y);
  return wrong ? &model : NULL;
}

static int call_from_threads(void) {
  pthread_t callers[CALLERS];
  int right = 1;
  for (int i = 0; i < CALLERS; ++i) pthread_create(&callers[i], NULL, call, NULL);
  for (int i = 0; i < CALLERS; ++i) {
    void *wrong;
    pthread_join(callers[i], &wrong);
    right &= wrong == NULL;
  }
  return right;
}

static int contains(const neocpu_event *outer, const neocpu_event *inner) {
  return outer->run == inner->run && outer->begin <= inner->begin && inner->end <= outer->end;
}

/* Return 0, or the number of what is wrong. */
static int check(const neocpu_event *events, size_t count, int threads) {
  const neocpu_event *run = NULL, *kernel = NULL, *last[THREADS] = {NULL};
  int runs = 0, calls = 0, tasks = 0, used = 0;
  for (const neocpu_event *event = events; event < events + count; ++event) {
    if (event->end < event->begin) return 30;
    if (event > events && event->begin < event[-1].begin) return 31;
    if (event->thread < 0 || event->thread >= threads) return 32;
    if (event->call < 0) {
      if (run != NULL && event->begin < run->end) return 33;
      if (event->run != runs++ || event->kernel != NULL || event->thread != 0) return 34;
      run = event, kernel = NULL;
    } else if (event->task < 0) {
      if (kernel != NULL && event->begin < kernel->end) return 35;
      if (event->call != (kernel == NULL ? 0 : kernel->call + 1)) return 36;
      if (run == NULL || !contains(run, event) || event->kernel == NULL) return 37;
      kernel = event;
      ++calls;
    } else {
      if (kernel == NULL || !contains(kernel, event) || event->call != kernel->call) return 38;
      if (strcmp(event->kernel, kernel->kernel) != 0 || event->loop < 0) return 39;
      const neocpu_event *before = last[event->thread];
      if (before != NULL && event->begin < before->end) return 40;
      used += before == NULL;
      last[event->thread] = event;
      ++tasks;
    }
  }
  printf("%d %d %d %d\n", runs, calls, tasks, used);
  return 0;
}

int main(int count, char **words) {
  const neocpu_event *events;
  size_t noted;
  if (count < 3) return 99;
  const neocpu_options options = {.threads = atoi(words[2])};
  if (neocpu_load(words[1], &options, &model) != NEOCPU_OK) return 1;
  const neocpu_description *is = neocpu_describe(model);
  float *x = aligned_alloc(64, (is->inputs[0].bytes + 63) / 64 * 64);
  for (size_t i = 0; i < is->inputs[0].bytes / sizeof *x; ++i) x[i] = (float)(i % 17) - 8;
  bytes = is->outputs[0].bytes;
  char *y = malloc(bytes);
  input = (neocpu_input){x, is->inputs[0].bytes};
  neocpu_output output = {y, bytes, 0};
  expected = y;
  if (neocpu_run(model, &input, 1, &output, 1) != NEOCPU_OK) return 2;
  if (neocpu_trace_start(NULL) != NEOCPU_USAGE) return 3;
  if (neocpu_trace_stop(model, NULL, &noted) != NEOCPU_USAGE) return 4;
  if (neocpu_trace_stop(model, &events, &noted) != NEOCPU_USAGE || noted != 0) return 5;
  if (neocpu_trace_start(model) != NEOCPU_OK) return 6;
  if (neocpu_trace_stop(model, &events, &noted) != NEOCPU_OK || noted != 0) return 7;
  /* What is noted before another start is forgotten, and so is what nobody asks for. */
  for (int i = 0; i < 3; ++i) {
    if (!call_from_threads()) return 8;
    if (neocpu_trace_start(model) != NEOCPU_OK) return 9;
  }
  if (!call_from_threads()) return 10;
  if (neocpu_trace_stop(model, &events, &noted) != NEOCPU_OK) return 11;
  if (!call_from_threads()) return 12;
  const int wrong = check(events, noted, is->threads);
  if (wrong == 0 && neocpu_trace_start(model) != NEOCPU_OK) return 13;
  if (!call_from_threads()) return 14;
  neocpu_free(model);
  free(x), free(y);
  return wrong;
}
