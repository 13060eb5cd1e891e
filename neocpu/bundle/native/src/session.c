#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "error.h"

/* Zeros, on huge pages where the kernel has them; null if there is no memory. */
static void *map_memory(size_t size) {
  void *memory =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  madvise(memory, size, MADV_HUGEPAGE); /* fails on a kernel without them */
  return memory;
}

static neocpu_status out_of_memory(size_t size) {
  return nc_fail(NEOCPU_FAILURE, "out of memory: %zu bytes are needed", size);
}

static neocpu_status make_memory(nc_session *session, const nc_artifact *artifact,
                                 int huge_pages) {
  const nc_header *header = session->header;
  session->arena_size = header->arena_bytes;
  if (session->arena_size > 0) {
    session->arena = map_memory(session->arena_size);
    if (session->arena == NULL) return out_of_memory(session->arena_size);
  }
  if (huge_pages && artifact->weights_size > 0) {
    session->weights_size = artifact->weights_size;
    session->weights = map_memory(session->weights_size);
    if (session->weights == NULL) return out_of_memory(session->weights_size);
    memcpy(session->weights, artifact->weights, artifact->weights_size);
  }
  session->argument_count =
      header->input_count + header->weight_count + header->activation_count;
  session->arguments = calloc(session->argument_count + 1, sizeof *session->arguments);
  session->staging = calloc(header->input_count + 1, sizeof *session->staging);
  if (session->arguments == NULL || session->staging == NULL) {
    return out_of_memory(session->argument_count * sizeof *session->arguments);
  }
  return NEOCPU_OK;
}

static neocpu_status describe_placements(char *memory, const nc_placement *placements,
                                         size_t count, nc_value *tensors) {
  for (size_t i = 0; i < count; ++i) {
    const neocpu_status status =
        nc_tvm_tensor(memory + placements[i].offset, &placements[i].spec, &tensors[i]);
    if (status != NEOCPU_OK) return status;
  }
  return NEOCPU_OK;
}

static neocpu_status describe_memory(nc_session *session, const nc_artifact *artifact) {
  const nc_header *header = session->header;
  nc_value *tensors = session->arguments;
  for (size_t i = 0; i < header->input_count; ++i) {
    const neocpu_status status = nc_tvm_tensor(NULL, &header->inputs[i], tensors++);
    if (status != NEOCPU_OK) return status;
  }
  /* Kernels only read weights, so the mapping of the file may stay read-only. */
  void *weights = session->weights != NULL ? session->weights : (void *)artifact->weights;
  const neocpu_status status =
      describe_placements(weights, header->weights, header->weight_count, tensors);
  if (status != NEOCPU_OK) return status;
  tensors += header->weight_count;
  return describe_placements(session->arena, header->activations, header->activation_count,
                             tensors);
}

/* What a header says in numbers besides its tensors: the size of the arena, each activation's place
 * in it, and each output's count of rows, -1 for none. */
static neocpu_status describe_layout(const nc_header *header, nc_value *layout) {
  const size_t room = 1 + header->activation_count + header->output_count;
  int64_t *numbers = calloc(room, sizeof *numbers);
  if (numbers == NULL) return out_of_memory(room * sizeof *numbers);
  size_t count = 0;
  numbers[count++] = (int64_t)header->arena_bytes;
  for (size_t i = 0; i < header->activation_count; ++i) {
    numbers[count++] = (int64_t)header->activations[i].offset;
  }
  for (size_t i = 0; header->counted && i < header->output_count; ++i) {
    numbers[count++] = header->row_counts[i] > 0 ? (int64_t)header->row_counts[i] : -1;
  }
  const neocpu_status status = nc_tvm_shape(numbers, count, layout);
  free(numbers);
  return status;
}

/* Tensors like those that main returns: outputs, and the counts behind them. */
static neocpu_status describe_results(const nc_header *header, nc_value *tensors) {
  static const int64_t one = 1;
  const neocpu_spec rows = {.dtype = "int64", .shape = &one, .rank = 1, .bytes = sizeof(int64_t)};
  for (size_t i = 0; i < header->result_count; ++i) {
    const neocpu_status status =
        nc_tvm_tensor(NULL, i < header->output_count ? &header->outputs[i] : &rows, &tensors[i]);
    if (status != NEOCPU_OK) return status;
  }
  return NEOCPU_OK;
}

/* Have the code compare with what its main takes and returns. Nothing else of it has run. */
static neocpu_status check_contract(const nc_session *session, nc_value machine) {
  const nc_header *header = session->header;
  const size_t taken = session->argument_count, count = 1 + taken + header->result_count;
  nc_value contract = {0}, nothing = {0};
  nc_value *arguments = calloc(count, sizeof *arguments);
  if (arguments == NULL) return out_of_memory(count * sizeof *arguments);
  nc_value *results = arguments + 1 + taken;
  memcpy(arguments + 1, session->arguments, taken * sizeof *arguments);
  neocpu_status status = describe_layout(header, arguments);
  if (status == NEOCPU_OK) status = describe_results(header, results);
  if (status == NEOCPU_OK) status = nc_tvm_function(machine, "contract", &contract);
  if (status == NEOCPU_OK) status = nc_tvm_call(&contract, arguments, count, &nothing);
  nc_tvm_release(&nothing);
  nc_tvm_release(&contract);
  nc_tvm_release(arguments);
  for (size_t i = 0; i < header->result_count; ++i) nc_tvm_release(&results[i]);
  free(arguments);
  return status;
}

static neocpu_status load_code(nc_session *session, const nc_artifact *artifact, const char *path) {
  nc_value machine;
  neocpu_status status = nc_tvm_load(artifact->code, artifact->code_size, &machine);
  if (status == NEOCPU_OK) status = check_contract(session, machine);
  if (status == NEOCPU_OK) status = nc_tvm_function(machine, "main", &session->main_function);
  nc_tvm_release(&machine);
  if (status == NEOCPU_OK) return NEOCPU_OK;
  char reason[NC_MESSAGE_SIZE];
  strcpy(reason, neocpu_error());
  return nc_fail(NEOCPU_ARTIFACT,
                 "cannot run %s: header and code disagree: %s; compile the model again with "
                 "`neocpu compile`",
                 path, reason);
}

neocpu_status nc_session_start(nc_session *session, const nc_artifact *artifact, const char *path,
                               int threads, int huge_pages) {
  session->header = &artifact->header;
  neocpu_status status = make_memory(session, artifact, huge_pages);
  if (status != NEOCPU_OK) return status;
  nc_tvm_lock();
  status = nc_tvm_make_pool(threads);
  if (status == NEOCPU_OK) status = describe_memory(session, artifact);
  if (status == NEOCPU_OK) status = load_code(session, artifact, path);
  nc_tvm_unlock();
  return status;
}

static int overlap(const neocpu_input *input, const neocpu_output *output) {
  const uintptr_t a = (uintptr_t)input->data, b = (uintptr_t)output->data;
  return a < b + output->bytes && b < a + input->bytes;
}

/* Whether a run may read the input where it lies: aligned, and not where an output goes (which may
 * be that very input). */
static int usable(const nc_session *session, const neocpu_input *input,
                  const neocpu_output *outputs) {
  if ((uintptr_t)input->data % NC_ARGUMENT_ALIGN != 0) return 0;
  for (size_t i = 0; i < session->header->output_count; ++i) {
    if (overlap(input, &outputs[i])) return 0;
  }
  return 1;
}

static neocpu_status stage(nc_session *session, size_t index, const neocpu_input *input,
                           const void **data) {
  void **buffer = &session->staging[index];
  if (*buffer == NULL) {
    *buffer = aligned_alloc(NC_ALIGN, (input->bytes + NC_ALIGN - 1) / NC_ALIGN * NC_ALIGN);
    if (*buffer == NULL) return out_of_memory(input->bytes);
  }
  memcpy(*buffer, input->data, input->bytes);
  *data = *buffer;
  return NEOCPU_OK;
}

neocpu_status nc_session_run(nc_session *session, const neocpu_input *inputs,
                             const neocpu_output *outputs, nc_value *result) {
  *result = (nc_value){0};
  for (size_t i = 0; i < session->header->input_count; ++i) {
    const void *data = inputs[i].data;
    if (!usable(session, &inputs[i], outputs)) {
      const neocpu_status status = stage(session, i, &inputs[i], &data);
      if (status != NEOCPU_OK) return status;
    }
    nc_tvm_content(&session->arguments[i], 0)->data = (void *)data; /* kernels only read inputs */
  }
  return nc_tvm_call(&session->main_function, session->arguments, session->argument_count, result);
}

static size_t tensor_bytes(const nc_tensor *tensor) {
  size_t bytes = tensor->bits / 8u * tensor->lanes;
  for (int32_t i = 0; i < tensor->rank; ++i) bytes *= (size_t)tensor->shape[i];
  return bytes;
}

static const void *tensor_data(const nc_tensor *tensor) {
  return (const char *)tensor->data + tensor->byte_offset;
}

/* How many rows of an output count in this run. */
static neocpu_status count_rows(const nc_header *header, const nc_value *result, size_t index,
                                size_t *rows) {
  const neocpu_spec *spec = &header->outputs[index];
  *rows = spec->rank > 0 ? (size_t)spec->shape[0] : 1;
  if (header->row_counts[index] == 0) return NEOCPU_OK;
  const nc_tensor *counted = nc_tvm_content(result, header->row_counts[index]);
  int64_t count = -1;
  if (counted != NULL && tensor_bytes(counted) == sizeof count) {
    memcpy(&count, tensor_data(counted), sizeof count);
  }
  if (count < 0 || count > spec->shape[0]) {
    return nc_fail(NEOCPU_ARTIFACT, "output '%s': the model counted %lld rows of %lld", spec->name,
                   (long long)count, (long long)spec->shape[0]);
  }
  *rows = (size_t)count;
  return NEOCPU_OK;
}

neocpu_status nc_session_copy(const nc_session *session, const nc_value *result,
                              neocpu_output *outputs) {
  const nc_header *header = session->header;
  for (size_t i = 0; i < header->output_count; ++i) {
    const neocpu_spec *spec = &header->outputs[i];
    const nc_tensor *tensor = nc_tvm_content(result, i);
    if (tensor == NULL || tensor_bytes(tensor) != spec->bytes) {
      return nc_fail(NEOCPU_ARTIFACT, "output '%s': header and code disagree on its size",
                     spec->name);
    }
    const neocpu_status status = count_rows(header, result, i, &outputs[i].rows);
    if (status != NEOCPU_OK) return status;
    size_t bytes = spec->bytes;
    if (spec->bounded && spec->bytes > 0) bytes = bytes / (size_t)spec->shape[0] * outputs[i].rows;
    if (bytes > 0) memcpy(outputs[i].data, tensor_data(tensor), bytes);
  }
  return NEOCPU_OK;
}

void nc_session_free(nc_session *session) {
  nc_tvm_lock();
  for (size_t i = 0; session->arguments != NULL && i < session->argument_count; ++i) {
    nc_tvm_release(&session->arguments[i]);
  }
  nc_tvm_release(&session->main_function);
  nc_tvm_unlock();
  for (size_t i = 0; session->staging != NULL && i < session->header->input_count; ++i) {
    free(session->staging[i]);
  }
  free(session->staging);
  free(session->arguments);
  if (session->arena != NULL) munmap(session->arena, session->arena_size);
  if (session->weights != NULL) munmap(session->weights, session->weights_size);
  *session = (nc_session){0};
}
