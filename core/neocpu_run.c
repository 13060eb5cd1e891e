/* neocpu_run: run a compiled model on arrays from .npy files. With NC_EMBEDDED defined, the model is
 * the one that embedded.S made part of the program. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "neocpu.h"
#include "src/npy.h"
#include "src/npy_sizes.h"

enum { ALIGN = 64, MAX_FILES = 64, TOP = 5, PROBLEM_SIZE = 1024 };

#ifdef NC_EMBEDDED
extern const char neocpu_embedded[], neocpu_embedded_end[];
#define MODEL ""
#define GIVEN "the model of this program"
#else
#define MODEL "MODEL.so "
#define GIVEN NULL
#endif

static const char usage[] =
    "usage: neocpu_run " MODEL "[INPUT.npy]... [-o OUTPUT.npy]... \n"
    "                  [--threads N | performance] [--repeat N]\n"
    "\n"
    "Runs the model on arrays given in the order of its inputs, on zeros if none are given, and\n"
    "prints its outputs: the five highest classes, else their range. -o writes them, in order.\n"
    "Of a model for a set of shapes, those of the arrays count; zeros are of the first. Of one whose\n"
    "calls choose sizes, the arrays have them; zeros are of the typical ones.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 usage, 5 target or instruction set, 8 bad artifact.\n";

typedef struct arguments {
  const char *model;
  const char *inputs[MAX_FILES], *outputs[MAX_FILES];
  size_t input_count, output_count;
  long threads, repeat;
} arguments;

/* The number of bytes of UTF-8 that make the next character, 0 if they make none. */
static size_t character(const unsigned char *text) {
  const size_t size = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2
                    : text[0] < 0xf0 ? 3 : text[0] < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < size; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return size;
}

/* Whether a terminal acts on a character: controls, line ends, changes of direction. */
static int is_active(const unsigned char *text, size_t size) {
  if (size == 1) return text[0] < 0x20 || text[0] == 0x7f;
  if (size == 2) return text[0] == 0xc2 && text[1] < 0xa0;
  if (size != 3 || text[0] != 0xe2) return 0;
  return (text[1] == 0x80 && (text[2] == 0x8e || text[2] == 0x8f ||
                              (text[2] >= 0xa8 && text[2] <= 0xae))) ||
         (text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9);
}

/* Print text that anybody may have written, bytes that a terminal acts on as \xNN. */
static void print_plain(FILE *to, const char *words) {
  const unsigned char *text = (const unsigned char *)words;
  while (*text != '\0') {
    const size_t size = character(text), taken = size > 0 ? size : 1;
    const int shown = size > 0 && !is_active(text, size);
    for (size_t i = 0; i < taken; ++i) fprintf(to, shown ? "%c" : "\\x%02x", text[i]);
    text += taken;
  }
}

static neocpu_status load(const char *path, const neocpu_options *options, neocpu_model **model) {
#ifdef NC_EMBEDDED
  (void)path;
  const size_t size = (size_t)(neocpu_embedded_end - neocpu_embedded);
  return neocpu_open_memory(neocpu_embedded, size, options, model);
#else
  return neocpu_load(path, options, model);
#endif
}

static int fail(int code, const char *message) {
  fputs("neocpu_run: error: ", stderr);
  print_plain(stderr, message);
  fputc('\n', stderr);
  return code;
}

/* A positive number; 0 if it is none. */
static long positive(const char *text) {
  char *end = NULL;
  errno = 0;
  const long number = text == NULL ? 0 : strtol(text, &end, 10);
  return errno == 0 && number > 0 && number <= 1 << 30 && *end == '\0' ? number : 0;
}

/* Return 0, or the exit code after a message. */
static int parse(int count, char **words, arguments *parsed) {
  for (int i = 1; i < count; ++i) {
    const char *word = words[i], *next = i + 1 < count ? words[i + 1] : NULL;
    if (strcmp(word, "-o") == 0) {
      if (next == NULL) return fail(NEOCPU_USAGE, "-o takes a file");
      if (parsed->output_count == MAX_FILES) return fail(NEOCPU_USAGE, "too many outputs");
      parsed->outputs[parsed->output_count++] = words[++i];
    } else if (strcmp(word, "--threads") == 0 || strcmp(word, "--repeat") == 0) {
      long *value = word[2] == 't' ? &parsed->threads : &parsed->repeat;
      const int fast = word[2] == 't' && next != NULL && strcmp(next, "performance") == 0;
      *value = fast ? NEOCPU_PERFORMANCE : positive(next);
      if (*value == 0) return fail(NEOCPU_USAGE, "--threads and --repeat take a positive number");
      ++i;
    } else if (word[0] == '-' && word[1] != '\0') {
      fputs(usage, stderr);
      return fail(NEOCPU_USAGE, "unknown option");
    } else if (parsed->model == NULL) {
      parsed->model = word;
    } else if (parsed->input_count == MAX_FILES) {
      return fail(NEOCPU_USAGE, "too many inputs");
    } else {
      parsed->inputs[parsed->input_count++] = word;
    }
  }
  if (parsed->model != NULL) return 0;
  fputs(usage, stderr);
  return fail(NEOCPU_USAGE, "no model is given");
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void print_spec(const char *kind, const neocpu_spec *spec) {
  printf("  %-8s ", kind);
  print_plain(stdout, spec->name);
  printf(" %s[%s", spec->dtype, spec->bounded ? "up to " : "");
  for (size_t i = 0; i < spec->rank; ++i) {
    printf("%s%lld", i > 0 ? "," : "", (long long)spec->shape[i]);
  }
  printf("]");
}

static void print_size(const neocpu_size *size) {
  printf("  size     ");
  print_plain(stdout, size->name);
  printf(" %lld..%lld", (long long)size->least, (long long)size->most);
  if (size->step > 1) printf(" in steps of %lld", (long long)size->step);
  printf("\n");
}

/* Print the highest elements of a row of classes. */
static void print_top(const float *row, size_t count) {
  size_t shown[TOP];
  printf(", highest:");
  for (size_t n = 0; n < TOP && n < count; ++n) {
    size_t best = count;
    for (size_t i = 0; i < count; ++i) {
      int taken = 0;
      for (size_t j = 0; j < n; ++j) taken |= shown[j] == i;
      if (!taken && (best == count || row[i] > row[best])) best = i;
    }
    shown[n] = best;
    printf(" %zu (%g)", best, (double)row[best]);
  }
}

static void print_range(const float *values, size_t count) {
  double low = INFINITY, high = -INFINITY, sum = 0;
  for (size_t i = 0; i < count; ++i) {
    low = fmin(low, (double)values[i]);
    high = fmax(high, (double)values[i]);
    sum += (double)values[i];
  }
  if (count > 0) printf(", from %g to %g, mean %g", low, high, sum / (double)count);
}

static void print_output(const neocpu_spec *spec, const neocpu_output *output) {
  print_spec("output", spec);
  if (spec->bounded) printf(", %zu rows", output->rows);
  if (strcmp(spec->dtype, "float32") == 0) {
    size_t count = spec->bytes / sizeof(float);
    if (spec->bounded && count > 0) count = count / (size_t)spec->shape[0] * output->rows;
    const int classes = spec->rank >= 2 && (size_t)spec->shape[1] == count && count > TOP;
    (classes ? print_top : print_range)(output->data, count);
  }
  printf("\n");
}

/* The arguments of a run, and its memory. */
typedef struct buffers {
  const neocpu_description *model;
  size_t signature;
  npy_sizes sizes;             /* that the files have; all null: the signature's */
  const neocpu_spec *in, *out; /* of the sizes, or the signature */
  neocpu_input *inputs;
  neocpu_output *outputs;
} buffers;

/* Zeros where kernels can read and write them without a copy. */
static void *zeros(size_t bytes) {
  const size_t rounded = (bytes + ALIGN) / ALIGN * ALIGN;
  void *data = aligned_alloc(ALIGN, rounded);
  return data == NULL ? NULL : memset(data, 0, rounded);
}

static void free_inputs(buffers *made) {
  for (size_t i = 0; made->inputs != NULL && i < made->model->input_count; ++i) {
    free((void *)made->inputs[i].data);
    made->inputs[i].data = NULL;
  }
}

/* Read files, or make zeros without any, as inputs; return whether they are such. */
static int read_inputs(const arguments *given, buffers *made, char *problem) {
  for (size_t i = 0; i < made->model->input_count; ++i) {
    void *data = NULL;
    if (given->input_count == 0) {
      data = zeros(made->in[i].bytes);
      if (data == NULL) snprintf(problem, PROBLEM_SIZE, "out of memory");
    } else {
      npy_read(given->inputs[i], &made->in[i], &data, problem, PROBLEM_SIZE);
    }
    if (data == NULL) {
      free_inputs(made);
      return 0;
    }
    made->inputs[i] = (neocpu_input){data, made->in[i].bytes};
  }
  return 1;
}

/* Read files of any size that the model takes. */
static int read_sized_inputs(const arguments *given, const neocpu_model *model, buffers *made) {
  char problem[PROBLEM_SIZE];
  const neocpu_status status =
      npy_sizes_read(model, given->inputs, &made->sizes, problem, sizeof problem);
  if (status != NEOCPU_OK) return fail((int)status, problem);
  made->in = made->sizes.inputs;
  made->out = made->sizes.outputs;
  return read_inputs(given, made, problem) ? 0 : fail(NEOCPU_USAGE, problem);
}

/* Read files of the shapes of any signature; those of the first one are zeros without files. */
static int read_fixed_inputs(const arguments *given, buffers *made) {
  char problem[PROBLEM_SIZE], every[PROBLEM_SIZE + 64];
  const size_t count = made->model->signature_count;
  for (size_t i = 0; i < count; ++i) {
    made->signature = i;
    made->in = made->model->signatures[i].inputs;
    made->out = made->model->signatures[i].outputs;
    if (read_inputs(given, made, problem)) return 0;
  }
  if (given->input_count == 0) return fail(NEOCPU_FAILURE, problem);
  const char *of = count > 1 ? "the files have none of the model's shapes; of the last: " : "";
  snprintf(every, sizeof every, "%s%s", of, problem);
  return fail(NEOCPU_USAGE, every);
}

static int make_buffers(const arguments *given, const neocpu_model *loaded, buffers *made) {
  char problem[PROBLEM_SIZE];
  const neocpu_description *model = made->model;
  made->inputs = calloc(model->input_count + 1, sizeof *made->inputs);
  made->outputs = calloc(model->output_count + 1, sizeof *made->outputs);
  if (made->inputs == NULL || made->outputs == NULL) return fail(NEOCPU_FAILURE, "out of memory");
  if (given->input_count > 0 && given->input_count != model->input_count) {
    snprintf(problem, sizeof problem, "the model takes %zu inputs, got %zu files",
             model->input_count, given->input_count);
    return fail(NEOCPU_USAGE, problem);
  }
  if (given->output_count > model->output_count) {
    return fail(NEOCPU_USAGE, "the model has fewer outputs than files to write");
  }
  const int sized = model->size_count > 0 && given->input_count > 0;
  const int code = sized ? read_sized_inputs(given, loaded, made) : read_fixed_inputs(given, made);
  if (code != 0) return code;
  for (size_t i = 0; i < model->output_count; ++i) {
    made->outputs[i] = (neocpu_output){zeros(made->out[i].bytes), made->out[i].bytes, 0};
    if (made->outputs[i].data == NULL) return fail(NEOCPU_FAILURE, "out of memory");
  }
  return 0;
}

static void free_buffers(buffers *made) {
  free_inputs(made);
  for (size_t i = 0; made->outputs != NULL && i < made->model->output_count; ++i) {
    free(made->outputs[i].data);
  }
  free(made->inputs);
  free(made->outputs);
  npy_sizes_free(&made->sizes);
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static neocpu_status call(neocpu_model *model, buffers *data) {
  const size_t inputs = data->model->input_count, outputs = data->model->output_count;
  if (data->sizes.sizes != NULL) {
    return neocpu_run_sizes(model, data->sizes.sizes, data->inputs, inputs, data->outputs, outputs);
  }
  return neocpu_run_signature(model, data->signature, data->inputs, inputs, data->outputs, outputs);
}

/* Run once, then `repeat` times more, and print how long that took. */
static int run(neocpu_model *model, buffers *data, long repeat) {
  double *times = calloc((size_t)repeat + 1, sizeof *times);
  if (times == NULL) return fail(NEOCPU_FAILURE, "out of memory");
  for (long i = 0; i <= repeat; ++i) {
    const double start = seconds();
    const neocpu_status status = call(model, data);
    times[i] = seconds() - start;
    if (status != NEOCPU_OK) {
      free(times);
      return fail((int)status, neocpu_error());
    }
  }
  printf("  first run %.3f ms\n", times[0] * 1e3);
  if (repeat > 0) {
    qsort(times + 1, (size_t)repeat, sizeof *times, compare);
    printf("  latency  median %.3f ms, fastest %.3f ms, slowest %.3f ms of %ld runs\n",
           times[1 + repeat / 2] * 1e3, times[1] * 1e3, times[repeat] * 1e3, repeat);
  }
  free(times);
  return 0;
}

static int write_outputs(const arguments *given, const buffers *data) {
  char problem[PROBLEM_SIZE];
  for (size_t i = 0; i < given->output_count; ++i) {
    const neocpu_output *output = &data->outputs[i];
    if (!npy_write(given->outputs[i], &data->out[i], output->rows, output->data, problem,
                   sizeof problem)) {
      return fail(NEOCPU_USAGE, problem);
    }
  }
  return 0;
}

static int run_model(const arguments *given, neocpu_model *model) {
  buffers data = {.model = neocpu_describe(model)};
  int code = make_buffers(given, model, &data);
  if (code == 0) code = run(model, &data, given->repeat);
  for (size_t i = 0; code == 0 && i < data.model->output_count; ++i) {
    print_output(&data.out[i], &data.outputs[i]);
  }
  if (code == 0) code = write_outputs(given, &data);
  free_buffers(&data);
  return code;
}

int main(int count, char **words) {
  arguments given = {.model = GIVEN};
  if (count == 2 && strcmp(words[1], "--help") == 0) return fputs(usage, stdout) < 0;
  int code = parse(count, words, &given);
  if (code != 0) return code;
  neocpu_model *model;
  const neocpu_options options = {.threads = (int)given.threads};
  const double start = seconds();
  const neocpu_status status = load(given.model, &options, &model);
  if (status != NEOCPU_OK) return fail((int)status, neocpu_error());
  const double loaded = seconds() - start;
  const neocpu_description *description = neocpu_describe(model);
  print_plain(stdout, description->name);
  printf("\n  target   ");
  print_plain(stdout, description->target);
  printf("\n  threads  %d\n", description->threads);
  for (size_t i = 0; i < description->signature_count; ++i) {
    for (size_t j = 0; j < description->input_count; ++j) {
      print_spec("input", &description->signatures[i].inputs[j]);
      printf("\n");
    }
  }
  for (size_t i = 0; i < description->size_count; ++i) print_size(&description->sizes[i]);
  printf("  load     %.3f ms\n", loaded * 1e3);
  code = run_model(&given, model);
  neocpu_free(model);
  return code;
}
