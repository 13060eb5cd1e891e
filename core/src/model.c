/* The functions of neocpu.h but for calls. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpus.h"
#include "error.h"
#include "model.h"

/* Far more threads than CPUs are a mistake of the caller's. */
enum { THREADS_PER_CPU = 16 };

/* Check the options, and write how many threads a call runs on. */
static neocpu_status choose_threads(const neocpu_options *options, int *threads) {
  const long limit = THREADS_PER_CPU * sysconf(_SC_NPROCESSORS_CONF);
  const int fast = options->threads == NEOCPU_PERFORMANCE;
  if ((options->threads < 0 && !fast) || options->threads > limit) {
    return nc_fail(NEOCPU_USAGE, "threads must be from 1 to %ld on this machine, got %d", limit,
                   options->threads);
  }
  *threads = fast ? nc_usable_performance_cpus()
             : options->threads > 0 ? options->threads
                                    : nc_usable_cpus();
  /* More could only take turns on those that there are. */
  const int most = nc_allowed_cpus();
  if (*threads > most) *threads = most;
  return NEOCPU_OK;
}

/* The CPUs that the threads of the options stay on. */
static int places(const neocpu_options *options) {
  return (options->pin ? NC_PINNED : 0) |
         (options->threads == NEOCPU_PERFORMANCE ? NC_FAST : 0);
}

/* The pool of the options, or one of the model's own. */
static neocpu_status choose_pool(neocpu_model *model, const neocpu_options *options, int threads) {
  if (options->pool == NULL) {
    return nc_pool_start(threads, places(options), &model->pool);
  }
  if (!nc_pool_is_ours(options->pool)) {
    return nc_fail(NEOCPU_USAGE,
                   "the pool was made before this process forked: make one in the child");
  }
  nc_pool_retain(options->pool);
  model->pool = options->pool;
  return NEOCPU_OK;
}

static const neocpu_options DEFAULTS;

/* Make ready what the source has, on the pool that the model has. */
static neocpu_status start(neocpu_model *model) {
  const nc_header *header = &model->source->artifact.header;
  const nc_program *first = header->programs;
  model->signatures = calloc(header->program_count, sizeof *model->signatures);
  if (model->signatures == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  for (size_t i = 0; i < header->program_count; ++i) {
    model->signatures[i] = (neocpu_signature){first[i].inputs, first[i].outputs};
  }
  model->description = (neocpu_description){
      .name = header->name,
      .target = header->target,
      .threads = nc_pool_size(model->pool),
      .inputs = first->inputs,
      .input_count = first->input_count,
      .outputs = first->outputs,
      .output_count = first->output_count,
      .signatures = model->signatures,
      .signature_count = header->program_count,
      .sizes = header->sizes.sizes,
      .size_count = header->sizes.count,
  };
  const neocpu_status status = nc_plans_start(&model->plans, model->source, model->pool);
  model->description.packing = model->source->packing;
  return status;
}

static neocpu_status open_model(neocpu_model *model, const nc_file *file,
                                const neocpu_options *options) {
  int threads = 0;
  neocpu_status status = choose_threads(options, &threads);
  if (status == NEOCPU_OK) status = nc_source_open(file, &model->source);
  if (status == NEOCPU_OK) status = choose_pool(model, options, threads);
  if (status == NEOCPU_OK && !options->trust_weights) {
    status = nc_source_start_check(model->source, nc_pool_size(model->pool));
  }
  if (status == NEOCPU_OK && options->huge_pages) {
    status = nc_source_copy_weights(model->source, model->pool);
  }
  return status == NEOCPU_OK ? start(model) : status;
}

static neocpu_status open_stream(neocpu_model *stream, nc_source *source,
                                 const neocpu_options *options) {
  int threads = 0;
  neocpu_status status = choose_threads(options, &threads);
  if (status == NEOCPU_OK) status = choose_pool(stream, options, threads);
  if (status != NEOCPU_OK) return status;
  nc_source_retain(source);
  stream->source = source;
  return start(stream);
}

/* Make a model: of a file, or a stream of the one that has `source`. */
static neocpu_status make(const nc_file *file, nc_source *source, const neocpu_options *options,
                          neocpu_model **model) {
  if (options == NULL) options = &DEFAULTS;
  neocpu_model *made = calloc(1, sizeof *made);
  if (made == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  made->process = getpid();
  nc_queue_init(&made->queue);
  const neocpu_status status = source == NULL ? open_model(made, file, options)
                                              : open_stream(made, source, options);
  if (status == NEOCPU_OK) {
    *model = made;
  } else {
    neocpu_free(made);
  }
  return status;
}

neocpu_status neocpu_load(const char *path, const neocpu_options *options, neocpu_model **model) {
  nc_file file;
  if (model == NULL) return nc_fail(NEOCPU_USAGE, "the place for the model is a null pointer");
  *model = NULL;
  if (path == NULL) return nc_fail(NEOCPU_USAGE, "the path of the model is a null pointer");
  neocpu_status status = nc_file_open(path, &file);
  if (status != NEOCPU_OK) return status;
  status = make(&file, NULL, options, model);
  nc_file_close(&file);
  return status;
}

neocpu_status neocpu_open_memory(const void *data, size_t size, const neocpu_options *options,
                                 neocpu_model **model) {
  if (model == NULL) return nc_fail(NEOCPU_USAGE, "the place for the model is a null pointer");
  *model = NULL;
  if (data == NULL) return nc_fail(NEOCPU_USAGE, "the model in memory is a null pointer");
  nc_file file = nc_file_of_memory(data, size);
  return make(&file, NULL, options, model);
}

neocpu_status neocpu_pool_start(int threads, int pin, neocpu_pool **pool) {
  if (pool == NULL) return nc_fail(NEOCPU_USAGE, "the place for the pool is a null pointer");
  *pool = NULL;
  const neocpu_options options = {.threads = threads, .pin = pin};
  const neocpu_status status = choose_threads(&options, &threads);
  return status == NEOCPU_OK ? nc_pool_start(threads, places(&options), pool) : status;
}

int neocpu_pool_threads(const neocpu_pool *pool) { return pool == NULL ? 0 : nc_pool_size(pool); }

void neocpu_pool_wait(neocpu_pool *pool) {
  if (pool == NULL || !nc_pool_is_ours(pool)) return;
  nc_pool_enter(pool);
  nc_pool_leave(pool);
}

void neocpu_pool_free(neocpu_pool *pool) { nc_pool_release(pool); }

const neocpu_description *neocpu_describe(const neocpu_model *model) {
  return model == NULL ? NULL : &model->description;
}

const char *neocpu_metadata(const neocpu_model *model) {
  return model == NULL ? NULL : model->source->artifact.metadata;
}

neocpu_status nc_model_check(const neocpu_model *model) {
  if (model == NULL) return nc_fail(NEOCPU_USAGE, "the model is a null pointer: was it loaded?");
  if (model->process == getpid()) return NEOCPU_OK;
  return nc_fail(NEOCPU_USAGE,
                 "model '%s' was loaded before this process forked: load it in the child",
                 model->description.name);
}

neocpu_status neocpu_verify(neocpu_model *model) {
  const neocpu_status status = nc_model_check(model);
  return status == NEOCPU_OK ? nc_source_verify(model->source) : status;
}

neocpu_status neocpu_trace_start(neocpu_model *model) {
  neocpu_status status = nc_model_check(model);
  if (status != NEOCPU_OK) return status;
  nc_trace *trace;
  status = nc_trace_make(nc_pool_size(model->pool), &trace);
  if (status != NEOCPU_OK) return status;
  nc_pool_enter(model->pool);
  nc_trace_free(model->trace);
  model->trace = model->plans.shared.trace = trace;
  nc_pool_leave(model->pool);
  return NEOCPU_OK;
}

neocpu_status neocpu_trace_stop(neocpu_model *model, const neocpu_event **events, size_t *count) {
  if (events == NULL || count == NULL) {
    return nc_fail(NEOCPU_USAGE, "the place for the events or their number is a null pointer");
  }
  *events = NULL;
  *count = 0;
  const neocpu_status status = nc_model_check(model);
  if (status != NEOCPU_OK) return status;
  nc_pool_enter(model->pool);
  nc_trace *trace = model->plans.shared.trace;
  model->plans.shared.trace = NULL;
  nc_pool_leave(model->pool);
  if (trace == NULL) return nc_fail(NEOCPU_USAGE, "no trace of the model was started");
  return nc_trace_collect(trace, events, count);
}

neocpu_status neocpu_load_stream(neocpu_model *model, const neocpu_options *options,
                                 neocpu_model **stream) {
  if (stream == NULL) return nc_fail(NEOCPU_USAGE, "the place for the stream is a null pointer");
  *stream = NULL;
  const neocpu_status status = nc_model_check(model);
  return status == NEOCPU_OK ? make(NULL, model->source, options, stream) : status;
}

void neocpu_intercept(neocpu_model *model, const nc_interception *interception) {
  nc_plans_intercept(&model->plans, interception);
}

void neocpu_free(neocpu_model *model) {
  if (model == NULL) return;
  /* A child has none of its threads, so the model stays. */
  if (model->process != getpid()) return;
  nc_queue_end(&model->queue);
  nc_plans_free(&model->plans);
  free(model->signatures);
  nc_trace_free(model->trace);
  nc_pool_release(model->pool);
  nc_source_release(model->source);
  free(model);
}
