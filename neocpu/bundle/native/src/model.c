/* The functions of neocpu.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "artifact.h"
#include "cpus.h"
#include "error.h"
#include "neocpu.h"
#include "session.h"
#include "worker.h"

/* Threads beyond the CPUs only spin; far beyond, they take the machine down. */
enum { THREADS_PER_CPU = 16 };

struct neocpu_model {
  char *path;
  pid_t process; /* that loaded it: a child has none of its threads */
  int huge_pages;
  nc_artifact artifact;
  nc_worker worker;
  int working; /* whether the worker was started */
  nc_session session;
  neocpu_description description;
  /* The check of the weights, in a thread of its own until the first run has waited for it. */
  pthread_t verifier;
  int verifying;
  atomic_int stop;
  neocpu_status verdict;
  char reason[NC_MESSAGE_SIZE];
};

typedef struct run_request {
  neocpu_model *model;
  const neocpu_input *inputs;
  neocpu_output *outputs;
} run_request;

static void *verify(void *data) {
  neocpu_model *model = data;
  model->verdict = nc_artifact_verify(&model->artifact, model->path, &model->stop);
  if (model->verdict != NEOCPU_OK) strcpy(model->reason, neocpu_error());
  return NULL;
}

static neocpu_status start(void *data) {
  neocpu_model *model = data;
  return nc_session_start(&model->session, &model->artifact, model->path,
                          model->description.threads, model->huge_pages);
}

static neocpu_status finish(void *data) {
  neocpu_model *model = data;
  nc_session_free(&model->session);
  return NEOCPU_OK;
}

static neocpu_status run(void *data) {
  run_request *request = data;
  neocpu_model *model = request->model;
  nc_value result;
  /* Before the run and not after it: damaged indices could lead a kernel anywhere. */
  if (model->verifying) { /* on the worker only */
    pthread_join(model->verifier, NULL);
    model->verifying = 0;
  }
  if (model->verdict != NEOCPU_OK) return nc_fail(model->verdict, "%s", model->reason);
  neocpu_status status =
      nc_session_run(&model->session, request->inputs, request->outputs, &result);
  if (status == NEOCPU_OK) status = nc_session_copy(&model->session, &result, request->outputs);
  nc_tvm_release(&result);
  return status;
}

/* Check the options, and write how many threads a call runs on. */
static neocpu_status choose_threads(const neocpu_options *options, int *threads) {
  const long limit = THREADS_PER_CPU * sysconf(_SC_NPROCESSORS_CONF);
  if (options->threads < 0 || options->threads > limit) {
    return nc_fail(NEOCPU_USAGE, "threads must be from 1 to %ld on this machine, got %d", limit,
                   options->threads);
  }
  *threads = options->threads > 0 ? options->threads : nc_usable_cpus();
  return NEOCPU_OK;
}

static neocpu_status open_model(neocpu_model *model, const neocpu_options *options) {
  nc_artifact *artifact = &model->artifact;
  const nc_header *header = &artifact->header;
  int threads = 0;
  neocpu_status status = choose_threads(options, &threads);
  if (status == NEOCPU_OK) status = nc_artifact_open(model->path, artifact);
  if (status == NEOCPU_OK) status = nc_artifact_check_host(artifact, model->path);
  if (status != NEOCPU_OK) return status;
  model->huge_pages = options->huge_pages;
  model->description = (neocpu_description){
      .name = header->name,
      .target = header->target,
      .threads = threads,
      .inputs = header->inputs,
      .input_count = header->input_count,
      .outputs = header->outputs,
      .output_count = header->output_count,
  };
  if (!options->trust_weights) {
    status = nc_thread_start(&model->verifier, verify, model);
    if (status != NEOCPU_OK) return status;
    model->verifying = 1;
  }
  status = nc_tvm_open(options->libraries, model->path, header->tvm_version, header->ffi_version);
  if (status == NEOCPU_OK) status = nc_worker_start(&model->worker);
  if (status != NEOCPU_OK) return status;
  model->working = 1;
  return nc_worker_call(&model->worker, start, model);
}

neocpu_status neocpu_load(const char *path, const neocpu_options *options, neocpu_model **model) {
  static const neocpu_options defaults;
  if (model == NULL) return nc_fail(NEOCPU_USAGE, "the place for the model is a null pointer");
  *model = NULL;
  if (path == NULL) return nc_fail(NEOCPU_USAGE, "the path of the model is a null pointer");
  neocpu_model *made = calloc(1, sizeof *made);
  char *copy = made == NULL ? NULL : strdup(path);
  if (copy == NULL) {
    free(made);
    return nc_fail(NEOCPU_FAILURE, "out of memory");
  }
  made->path = copy;
  made->process = getpid();
  const neocpu_status status = open_model(made, options == NULL ? &defaults : options);
  if (status == NEOCPU_OK) {
    *model = made;
  } else {
    neocpu_free(made);
  }
  return status;
}

const neocpu_description *neocpu_describe(const neocpu_model *model) {
  return model == NULL ? NULL : &model->description;
}

static neocpu_status check_input(const neocpu_spec *spec, const neocpu_input *input) {
  if (input->bytes == spec->bytes && (input->data != NULL || spec->bytes == 0)) return NEOCPU_OK;
  return nc_fail(NEOCPU_USAGE, "input '%s': expected %zu bytes of %s, got %zu%s", spec->name,
                 spec->bytes, spec->dtype, input->bytes,
                 input->data == NULL ? " at a null pointer" : "");
}

static neocpu_status check_output(const neocpu_spec *spec, const neocpu_output *output) {
  if (output->bytes >= spec->bytes && (output->data != NULL || spec->bytes == 0)) return NEOCPU_OK;
  return nc_fail(NEOCPU_USAGE, "output '%s': %zu bytes of %s need room, got %zu%s", spec->name,
                 spec->bytes, spec->dtype, output->bytes,
                 output->data == NULL ? " at a null pointer" : "");
}

neocpu_status neocpu_run(neocpu_model *model, const neocpu_input *inputs, size_t input_count,
                         neocpu_output *outputs, size_t output_count) {
  if (model == NULL) return nc_fail(NEOCPU_USAGE, "the model is a null pointer: was it loaded?");
  const neocpu_description *description = &model->description;
  neocpu_status status = NEOCPU_OK;
  if (model->process != getpid()) {
    return nc_fail(NEOCPU_USAGE,
                   "model '%s' was loaded before this process forked: load it in the child",
                   description->name);
  }
  if (input_count != description->input_count || output_count != description->output_count) {
    return nc_fail(NEOCPU_USAGE, "the model has %zu inputs and %zu outputs, got %zu and %zu",
                   description->input_count, description->output_count, input_count,
                   output_count);
  }
  if ((inputs == NULL && input_count > 0) || outputs == NULL) {
    return nc_fail(NEOCPU_USAGE, "the array of inputs or outputs is a null pointer");
  }
  for (size_t i = 0; i < input_count && status == NEOCPU_OK; ++i) {
    status = check_input(&description->inputs[i], &inputs[i]);
  }
  for (size_t i = 0; i < output_count && status == NEOCPU_OK; ++i) {
    status = check_output(&description->outputs[i], &outputs[i]);
  }
  if (status != NEOCPU_OK) return status;
  run_request request = {model, inputs, outputs};
  return nc_worker_call(&model->worker, run, &request);
}

void neocpu_free(neocpu_model *model) {
  if (model == NULL) return;
  /* In a child its threads do not exist, and others may have held TVM's locks: it stays. */
  if (model->process != getpid()) return;
  atomic_store(&model->stop, 1);
  if (model->working) {
    nc_worker_call(&model->worker, finish, model);
    nc_worker_stop(&model->worker);
  }
  if (model->verifying) pthread_join(model->verifier, NULL);
  nc_artifact_free(&model->artifact);
  free(model->path);
  free(model);
}
