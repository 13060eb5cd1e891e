#include "npy_sizes.h"

#include <stdio.h>
#include <stdlib.h>

#include "npy.h"

static neocpu_status read_sizes(const neocpu_description *model, const char *const *files,
                                int64_t *sizes, char *problem, size_t size) {
  for (size_t i = 0; i < model->size_count; ++i) {
    const neocpu_size *one = &model->sizes[i];
    int64_t shape[NPY_MAX_RANK];
    size_t rank;
    if (!npy_shape(files[one->input], shape, &rank, problem, size)) return NEOCPU_USAGE;
    if (rank != model->inputs[one->input].rank) {
      snprintf(problem, size, "%s: input '%s' has %zu axes, the file holds %zu", files[one->input],
               model->inputs[one->input].name, model->inputs[one->input].rank, rank);
      return NEOCPU_USAGE;
    }
    sizes[i] = shape[one->axis];
  }
  return NEOCPU_OK;
}

/* Copy specifications, with other extents; return those behind them. */
static const int64_t *copy_specs(const neocpu_spec *from, size_t count, const int64_t *extents,
                                 neocpu_spec *to) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = from[i];
    to[i].shape = extents;
    to[i].bytes = npy_element(from[i].dtype);
    for (size_t j = 0; j < from[i].rank; ++j) to[i].bytes *= (size_t)*extents++;
  }
  return extents;
}

neocpu_status npy_sizes_read(const neocpu_model *model, const char *const *files, npy_sizes *found,
                             char *problem, size_t size) {
  const neocpu_description *is = neocpu_describe(model);
  size_t ranks = 0;
  for (size_t i = 0; i < is->input_count; ++i) ranks += is->inputs[i].rank;
  for (size_t i = 0; i < is->output_count; ++i) ranks += is->outputs[i].rank;
  *found = (npy_sizes){
      .sizes = calloc(is->size_count, sizeof *found->sizes),
      .inputs = calloc(is->input_count + 1, sizeof *found->inputs),
      .outputs = calloc(is->output_count, sizeof *found->outputs),
      .extents = calloc(ranks + 1, sizeof *found->extents),
  };
  if (found->sizes == NULL || found->inputs == NULL || found->outputs == NULL ||
      found->extents == NULL) {
    snprintf(problem, size, "out of memory");
    return NEOCPU_FAILURE;
  }
  neocpu_status status = read_sizes(is, files, found->sizes, problem, size);
  if (status != NEOCPU_OK) return status;
  status = neocpu_extents(model, found->sizes, found->extents);
  if (status != NEOCPU_OK) {
    snprintf(problem, size, "%s", neocpu_error());
    return status;
  }
  const int64_t *rest = copy_specs(is->inputs, is->input_count, found->extents, found->inputs);
  copy_specs(is->outputs, is->output_count, rest, found->outputs);
  return NEOCPU_OK;
}

void npy_sizes_free(npy_sizes *found) {
  free(found->sizes);
  free(found->inputs);
  free(found->outputs);
  free(found->extents);
  *found = (npy_sizes){0};
}
