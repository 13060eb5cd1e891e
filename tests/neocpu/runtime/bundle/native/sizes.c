/* sizes MODEL CALLS: calls of a model with two sizes, two inputs and two outputs, whose kernels compute
 * in a fixed order: from several threads, of streams, as jobs and in a child; every output is bit for
 * bit that of the same sizes before. Prints the model's sizes, then how many bytes of malloc's were in
 * use after 200 calls and at the end, and by how many kilobytes its own memory grew. */
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "random_data.h"

enum { CHOICES = 40, CALLERS = 4, EXTENTS = 64, EARLY = 200, JOBS = 30 };

/* Some sizes, their inputs, and what comes of them. */
typedef struct choice {
  int64_t sizes[2];
  data expected;
} choice;

static choice choices[CHOICES];

/* One of the sizes in a range. */
static int64_t choose(const neocpu_size *size, unsigned *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return size->least + (*seed >> 8) % ((size->most - size->least) / size->step + 1) * size->step;
}

static size_t bytes_of(size_t rank, const int64_t **extents) {
  size_t bytes = sizeof(float);
  for (size_t i = 0; i < rank; ++i) bytes *= (size_t)*(*extents)++;
  return bytes;
}

/* Make inputs, some of them where kernels cannot read them, and outputs. */
static int make(const neocpu_model *model, const int64_t *sizes, unsigned seed, data *made) {
  const neocpu_description *is = neocpu_describe(model);
  int64_t extents[EXTENTS];
  const int64_t *rest = extents;
  if (neocpu_extents(model, sizes, extents) != NEOCPU_OK) return 0;
  for (size_t i = 0; i < is->input_count; ++i) {
    const size_t bytes = bytes_of(is->inputs[i].rank, &rest), skew = seed % 2 * sizeof(float);
    seed = fill(&made->inputs[i], (char *)allocate(bytes + skew + 1) + skew, bytes, seed);
  }
  for (size_t i = 0; i < is->output_count; ++i) {
    const size_t bytes = bytes_of(is->outputs[i].rank, &rest);
    made->outputs[i] = (neocpu_output){allocate(bytes + 1), bytes, 0};
  }
  return 1;
}

static void discard(const neocpu_description *is, data *made) {
  for (size_t i = 0; i < is->input_count; ++i) free((void *)((size_t)made->inputs[i].data / 64 * 64));
  for (size_t i = 0; i < is->output_count; ++i) free(made->outputs[i].data);
}

/* The same inputs, and outputs of their own. */
static data borrow(const neocpu_description *is, const data *from) {
  data made = *from;
  for (size_t i = 0; i < is->output_count; ++i) {
    made.outputs[i].data = allocate(from->outputs[i].bytes + 1);
  }
  return made;
}

static void give_back(const neocpu_description *is, data *made) {
  for (size_t i = 0; i < is->output_count; ++i) free(made->outputs[i].data);
}

static int run_sizes(neocpu_model *model, const int64_t *sizes, data *with) {
  const neocpu_description *is = neocpu_describe(model);
  return neocpu_run_sizes(model, sizes, with->inputs, is->input_count, with->outputs,
                          is->output_count) == NEOCPU_OK;
}

/* Call a model with one of the choices, and compare. */
static int check(neocpu_model *model, unsigned number) {
  const neocpu_description *is = neocpu_describe(model);
  choice *one = &choices[number % CHOICES];
  data mine = borrow(is, &one->expected);
  const int right =
      run_sizes(model, one->sizes, &mine) && equal(is, &mine, &one->expected);
  give_back(is, &mine);
  return right;
}

typedef struct caller {
  neocpu_model *model;
  unsigned seed;
  int calls, right;
} caller;

static void *call(void *data) {
  caller *mine = data;
  mine->right = 1;
  for (int i = 0; i < mine->calls; ++i) {
    mine->seed = mine->seed * 1664525u + 1013904223u;
    mine->right &= check(mine->model, mine->seed >> 8);
  }
  return NULL;
}

static int call_at_once(neocpu_model *model, int calls) {
  neocpu_model *stream;
  pthread_t threads[CALLERS];
  caller callers[CALLERS];
  int right = 1;
  if (neocpu_load_stream(model, NULL, &stream) != NEOCPU_OK) return 0;
  for (int i = 0; i < CALLERS; ++i) {
    callers[i] = (caller){i % 2 ? stream : model, (unsigned)i, calls, 0};
    pthread_create(&threads[i], NULL, call, &callers[i]);
  }
  for (int i = 0; i < CALLERS; ++i) {
    pthread_join(threads[i], NULL);
    right &= callers[i].right;
  }
  neocpu_free(stream);
  return right;
}

static int submit(neocpu_model *model) {
  const neocpu_description *is = neocpu_describe(model);
  neocpu_job *jobs[JOBS];
  data mine[JOBS];
  int right = 1;
  for (int i = 0; i < JOBS; ++i) {
    int64_t sizes[2] = {choices[i].sizes[0], choices[i].sizes[1]};
    mine[i] = borrow(is, &choices[i].expected);
    if (neocpu_submit_sizes(model, sizes, mine[i].inputs, is->input_count, mine[i].outputs,
                            is->output_count, &jobs[i]) != NEOCPU_OK) {
      return 0;
    }
    sizes[0] = sizes[1] = -1; /* the library has its own copy */
  }
  for (int i = 0; i < JOBS; ++i) {
    right &= neocpu_wait(jobs[i]) == NEOCPU_OK && equal(is, &mine[i], &choices[i].expected);
    give_back(is, &mine[i]);
  }
  return right;
}

/* Whether calls of a child, and wrong ones, are refused. */
static int misuse(neocpu_model *model) {
  const neocpu_description *is = neocpu_describe(model);
  choice *one = &choices[0];
  data mine = borrow(is, &one->expected);
  int64_t extents[EXTENTS], wrong[2] = {is->sizes[0].most + 1, is->sizes[1].least};
  neocpu_job *job;
  int refused = neocpu_extents(model, NULL, extents) == NEOCPU_USAGE;
  refused &= neocpu_extents(model, one->sizes, NULL) == NEOCPU_USAGE;
  refused &= neocpu_extents(NULL, one->sizes, extents) == NEOCPU_USAGE;
  refused &= neocpu_extents(model, wrong, extents) == NEOCPU_USAGE;
  refused &= !run_sizes(model, wrong, &mine) && !run_sizes(model, NULL, &mine);
  refused &= neocpu_run_sizes(model, one->sizes, mine.inputs, 1, mine.outputs, 2) == NEOCPU_USAGE;
  refused &= neocpu_run_sizes(model, one->sizes, NULL, 2, mine.outputs, 2) == NEOCPU_USAGE;
  refused &= neocpu_submit_sizes(model, wrong, mine.inputs, 2, mine.outputs, 2, &job) ==
             NEOCPU_USAGE;
  refused &= neocpu_submit_sizes(model, one->sizes, mine.inputs, 2, mine.outputs, 2, NULL) ==
             NEOCPU_USAGE;
  mine.outputs[0].bytes -= 4;
  refused &= !run_sizes(model, one->sizes, &mine);
  mine.outputs[0].bytes += 4;
  mine.inputs[1].bytes += 4;
  refused &= !run_sizes(model, one->sizes, &mine);
  mine.inputs[1].bytes -= 4;
  refused &= run_sizes(model, one->sizes, &mine);
  const pid_t child = fork();
  if (child == 0) {
    _exit(neocpu_extents(model, one->sizes, extents) == NEOCPU_USAGE &&
          !run_sizes(model, one->sizes, &mine) ? 0 : 1);
  }
  int status;
  refused &= waitpid(child, &status, 0) == child && status == 0;
  give_back(is, &mine);
  return refused;
}

static size_t in_use(void) {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

static long resident(void) {
  char line[128];
  long value = -1;
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status) != NULL) sscanf(line, "RssAnon: %ld", &value);
  fclose(status);
  return value;
}

/* Call a model for any sizes, the largest first: memory that was used once stays. */
static int call_again_and_again(neocpu_model *model, int calls, size_t *early, size_t *late,
                                long *grown) {
  const neocpu_description *is = neocpu_describe(model);
  unsigned seed = 1;
  int64_t sizes[2] = {is->sizes[0].most, is->sizes[1].most};
  data mine = {0};
  if (!make(model, sizes, 1, &mine)) return 0;
  for (int i = 0; i < calls; ++i) {
    int64_t extents[EXTENTS];
    const int64_t *rest = extents;
    if (neocpu_extents(model, sizes, extents) != NEOCPU_OK) return 0;
    for (size_t j = 0; j < is->input_count; ++j) {
      mine.inputs[j].bytes = bytes_of(is->inputs[j].rank, &rest);
    }
    if (!run_sizes(model, sizes, &mine)) return 0;
    if (i == EARLY) *grown = -resident(), *early = in_use(); /* in this order: it opens a file */
    for (int j = 0; j < 2; ++j) sizes[j] = choose(&is->sizes[j], &seed);
  }
  *grown += resident();
  *late = in_use();
  discard(is, &mine);
  return 1;
}

int main(int count, char **words) {
  const neocpu_options options = {.threads = 2};
  const int calls = count > 2 ? atoi(words[2]) : EARLY + 1;
  neocpu_model *model;
  if (neocpu_load(words[1], &options, &model) != NEOCPU_OK) return 1;
  const neocpu_description *is = neocpu_describe(model);
  if (is->size_count != 2) return 2;
  for (int i = 0; i < 2; ++i) {
    const neocpu_size *one = &is->sizes[i];
    printf("%s %lld %lld %lld %lld %zu %zu\n", one->name, (long long)one->least,
           (long long)one->most, (long long)one->step, (long long)one->typical, one->input,
           one->axis);
  }
  size_t early = 0, late = 0;
  long grown = 0;
  if (!call_again_and_again(model, calls, &early, &late, &grown)) return 9;
  printf("%zu %zu %ld\n", early, late, grown);
  unsigned seed = 5;
  for (unsigned i = 0; i < CHOICES; ++i) {
    for (int j = 0; j < 2; ++j) choices[i].sizes[j] = choose(&is->sizes[j], &seed);
    if (!make(model, choices[i].sizes, i, &choices[i].expected)) return 3;
    if (!run_sizes(model, choices[i].sizes, &choices[i].expected)) return 4;
  }
  for (unsigned i = 0; i < 3 * CHOICES; ++i) {
    if (!check(model, i * 7)) return 5;
  }
  if (!call_at_once(model, calls / CALLERS / 10 + 1)) return 6;
  if (!submit(model)) return 7;
  if (!misuse(model)) return 8;
  for (int i = 0; i < CHOICES; ++i) discard(is, &choices[i].expected);
  neocpu_free(model);
  return 0;
}
