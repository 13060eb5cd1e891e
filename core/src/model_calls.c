/* The functions of neocpu.h that call a model. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "model.h"
#include "sized_header.h"

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

static neocpu_status check_counts(const neocpu_model *model, const neocpu_input *inputs,
                                  size_t input_count, const neocpu_output *outputs,
                                  size_t output_count) {
  const neocpu_status status = nc_model_check(model);
  if (status != NEOCPU_OK) return status;
  const neocpu_description *description = &model->description;
  if (input_count != description->input_count || output_count != description->output_count) {
    return nc_fail(NEOCPU_USAGE, "the model has %zu inputs and %zu outputs, got %zu and %zu",
                   description->input_count, description->output_count, input_count,
                   output_count);
  }
  if ((inputs == NULL && input_count > 0) || outputs == NULL) {
    return nc_fail(NEOCPU_USAGE, "the array of inputs or outputs is a null pointer");
  }
  return NEOCPU_OK;
}

/* Check the bytes of inputs and outputs, of which there are as many as there are to be. */
static neocpu_status check_bytes(const neocpu_model *model, neocpu_signature asked,
                                 const neocpu_input *inputs, const neocpu_output *outputs) {
  const neocpu_description *description = &model->description;
  neocpu_status status = NEOCPU_OK;
  for (size_t i = 0; i < description->input_count && status == NEOCPU_OK; ++i) {
    status = check_input(&asked.inputs[i], &inputs[i]);
  }
  for (size_t i = 0; i < description->output_count && status == NEOCPU_OK; ++i) {
    status = check_output(&asked.outputs[i], &outputs[i]);
  }
  return status;
}

static neocpu_status check_signature(const neocpu_model *model, size_t signature,
                                     const neocpu_input *inputs, const neocpu_output *outputs) {
  const neocpu_description *description = &model->description;
  if (signature >= description->signature_count) {
    return nc_fail(NEOCPU_USAGE, "the model has %zu signatures, there is no number %zu",
                   description->signature_count, signature);
  }
  return check_bytes(model, description->signatures[signature], inputs, outputs);
}

/* Check the sizes that a call chooses. */
static neocpu_status check_sizes(const neocpu_model *model, const int64_t *sizes) {
  const neocpu_status status = nc_model_check(model);
  if (status != NEOCPU_OK) return status;
  if (model->description.size_count == 0) {
    return nc_fail(NEOCPU_USAGE, "model '%s' has fixed shapes, and no sizes to choose",
                   model->description.name);
  }
  if (sizes == NULL) return nc_fail(NEOCPU_USAGE, "the array of sizes is a null pointer");
  return nc_sizes_check(&model->plans.header->sizes, sizes, model->description.name);
}

/* Check a call, and find out by its inputs what signature it is of. */
static neocpu_status check_call(const neocpu_model *model, const neocpu_input *inputs,
                                size_t input_count, const neocpu_output *outputs,
                                size_t output_count, size_t *signature) {
  neocpu_status status = check_counts(model, inputs, input_count, outputs, output_count);
  if (status == NEOCPU_OK) status = nc_plans_find(&model->plans, inputs, signature);
  return status == NEOCPU_OK ? check_signature(model, *signature, inputs, outputs) : status;
}

static neocpu_status run(neocpu_model *model, size_t signature, const neocpu_input *inputs,
                         neocpu_output *outputs) {
  /* This comes before the run and not after it: damaged indices could lead a kernel anywhere. */
  const neocpu_status verdict = nc_source_verify(model->source);
  if (verdict != NEOCPU_OK) return verdict;
  nc_pool_enter(model->pool);
  const neocpu_status status = nc_session_run(&model->plans.sessions[signature], inputs, outputs);
  nc_pool_leave(model->pool);
  return status;
}

neocpu_status neocpu_run(neocpu_model *model, const neocpu_input *inputs, size_t input_count,
                         neocpu_output *outputs, size_t output_count) {
  size_t signature;
  const neocpu_status status =
      check_call(model, inputs, input_count, outputs, output_count, &signature);
  return status == NEOCPU_OK ? run(model, signature, inputs, outputs) : status;
}

neocpu_status neocpu_run_signature(neocpu_model *model, size_t signature,
                                   const neocpu_input *inputs, size_t input_count,
                                   neocpu_output *outputs, size_t output_count) {
  neocpu_status status = check_counts(model, inputs, input_count, outputs, output_count);
  if (status == NEOCPU_OK) status = check_signature(model, signature, inputs, outputs);
  return status == NEOCPU_OK ? run(model, signature, inputs, outputs) : status;
}

static neocpu_status run_sizes(neocpu_model *model, const int64_t *sizes,
                               const neocpu_input *inputs, neocpu_output *outputs) {
  nc_session *session;
  neocpu_status status = nc_source_verify(model->source);
  if (status != NEOCPU_OK) return status;
  nc_pool_enter(model->pool);
  status = nc_bound_programs_find(&model->plans.bound, sizes, &session);
  if (status == NEOCPU_OK) {
    const nc_program *program = session->program;
    const neocpu_signature asked = {program->inputs, program->outputs};
    status = check_bytes(model, asked, inputs, outputs);
  }
  if (status == NEOCPU_OK) status = nc_session_run(session, inputs, outputs);
  nc_pool_leave(model->pool);
  return status;
}

neocpu_status neocpu_run_sizes(neocpu_model *model, const int64_t *sizes,
                               const neocpu_input *inputs, size_t input_count,
                               neocpu_output *outputs, size_t output_count) {
  neocpu_status status = check_sizes(model, sizes);
  if (status == NEOCPU_OK) status = check_counts(model, inputs, input_count, outputs, output_count);
  return status == NEOCPU_OK ? run_sizes(model, sizes, inputs, outputs) : status;
}

neocpu_status neocpu_extents(const neocpu_model *model, const int64_t *sizes, int64_t *extents) {
  neocpu_status status = check_sizes(model, sizes);
  if (status == NEOCPU_OK && extents == NULL) {
    status = nc_fail(NEOCPU_USAGE, "the place for the extents is a null pointer");
  }
  if (status != NEOCPU_OK) return status;
  const nc_header *header = model->plans.header;
  int64_t *values = calloc(nc_sizes_value_count(&header->sizes), sizeof *values);
  if (values == NULL) return nc_fail(NEOCPU_FAILURE, "out of memory");
  const char *wrong = nc_sizes_evaluate(&header->sizes, sizes, values)
                          ? nc_sized_header_extents(header, values, extents)
                          : "values";
  free(values);
  if (wrong == NULL) return NEOCPU_OK;
  return nc_sized_header_malformed(model->source->artifact.where, header, sizes, wrong);
}

/* The call of a job. */
typedef struct submission {
  neocpu_model *model;
  size_t signature;
  int64_t sizes[NC_MAX_SIZES]; /* the first one is 0 of a signature */
  const neocpu_input *inputs;
  neocpu_output *outputs;
} submission;

static neocpu_status run_submission(void *data) {
  submission *mine = data;
  if (mine->sizes[0] > 0) return run_sizes(mine->model, mine->sizes, mine->inputs, mine->outputs);
  return run(mine->model, mine->signature, mine->inputs, mine->outputs);
}

static neocpu_status submit(neocpu_model *model, size_t signature, const neocpu_input *inputs,
                            neocpu_output *outputs, neocpu_job **job) {
  const submission call = {
      .model = model, .signature = signature, .inputs = inputs, .outputs = outputs};
  return nc_queue_put(&model->queue, run_submission, &call, sizeof call, job);
}

neocpu_status neocpu_submit(neocpu_model *model, const neocpu_input *inputs, size_t input_count,
                            neocpu_output *outputs, size_t output_count, neocpu_job **job) {
  if (job == NULL) return nc_fail(NEOCPU_USAGE, "the place for the job is a null pointer");
  *job = NULL;
  size_t signature;
  const neocpu_status status =
      check_call(model, inputs, input_count, outputs, output_count, &signature);
  return status == NEOCPU_OK ? submit(model, signature, inputs, outputs, job) : status;
}

neocpu_status neocpu_submit_signature(neocpu_model *model, size_t signature,
                                      const neocpu_input *inputs, size_t input_count,
                                      neocpu_output *outputs, size_t output_count,
                                      neocpu_job **job) {
  if (job == NULL) return nc_fail(NEOCPU_USAGE, "the place for the job is a null pointer");
  *job = NULL;
  neocpu_status status = check_counts(model, inputs, input_count, outputs, output_count);
  if (status == NEOCPU_OK) status = check_signature(model, signature, inputs, outputs);
  return status == NEOCPU_OK ? submit(model, signature, inputs, outputs, job) : status;
}

neocpu_status neocpu_submit_sizes(neocpu_model *model, const int64_t *sizes,
                                  const neocpu_input *inputs, size_t input_count,
                                  neocpu_output *outputs, size_t output_count, neocpu_job **job) {
  if (job == NULL) return nc_fail(NEOCPU_USAGE, "the place for the job is a null pointer");
  *job = NULL;
  neocpu_status status = check_sizes(model, sizes);
  if (status == NEOCPU_OK) status = check_counts(model, inputs, input_count, outputs, output_count);
  if (status != NEOCPU_OK) return status;
  submission call = {.model = model, .inputs = inputs, .outputs = outputs};
  memcpy(call.sizes, sizes, model->description.size_count * sizeof *sizes);
  return nc_queue_put(&model->queue, run_submission, &call, sizeof call, job);
}
