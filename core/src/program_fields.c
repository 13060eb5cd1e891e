#include "program_fields.h"

#include <string.h>

enum { MAX_SPECS = 4096, MAX_REPEATS = 1024 };

/* The contents of an input that is compiled for pictures. No run depends on it, so that nothing is
 * wrong with what a later version may write: null then, as of any other tensor. */
static const neocpu_picture *read_picture(nc_reader *r, const nc_json *object, const char *field) {
  const nc_json *layout = nc_json_member(object, "layout");
  const nc_json *colours = nc_json_member(object, "colours"), *fit = nc_json_member(object, "fit");
  if (nc_json_text(layout) == NULL || nc_json_text(colours) == NULL || nc_json_text(fit) == NULL) {
    return NULL;
  }
  neocpu_picture *picture = nc_new_array(r, 1, sizeof *picture);
  picture->layout = nc_read_string(r, layout, field);
  picture->colours = nc_read_string(r, colours, field);
  picture->fit = nc_read_string(r, fit, field);
  return picture;
}

/* Inputs or outputs. */
static neocpu_spec *read_specs(nc_reader *r, const nc_json *array, const char *field,
                               size_t *count) {
  neocpu_spec *specs = nc_read_array(r, array, field, sizeof *specs, count);
  if (*count > MAX_SPECS) nc_wrong(r, field);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < *count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    specs[i].name = nc_read_string(r, nc_json_member(item, "name"), field);
    nc_read_type(r, nc_json_member(item, "dtype"), nc_json_member(item, "shape"), field, &specs[i]);
    const nc_json *bounded = nc_json_member(item, "bounded");
    specs[i].bounded = bounded != NULL && bounded->kind == NC_JSON_TRUE;
    if (bounded != NULL && !specs[i].bounded && bounded->kind != NC_JSON_FALSE) nc_wrong(r, field);
    if (specs[i].bounded && specs[i].rank == 0) nc_wrong(r, field);
    specs[i].picture = read_picture(r, nc_json_member(item, "picture"), field);
    for (size_t j = 0; j < i && r->wrong == NULL; ++j) {
      if (strcmp(specs[i].name, specs[j].name) == 0) nc_wrong(r, field);
    }
  }
  return specs;
}

/* Weights or activations, which lie in `room` bytes and start on multiples of `align`. */
static nc_placement *read_placements(nc_reader *r, const nc_json *array, const char *field,
                                     size_t room, size_t align, size_t *count) {
  nc_placement *placements = nc_read_array(r, array, field, sizeof *placements, count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < *count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    nc_placement *placement = &placements[i];
    const nc_json *offset = nc_json_first(item);
    if (offset == NULL || item->size != 3) {
      nc_wrong(r, field);
      break;
    }
    const nc_json *dtype = nc_json_next(offset);
    if (!nc_read_sized(r, offset, field, &placement->offset)) break;
    if (!nc_read_type(r, dtype, nc_json_next(dtype), field, &placement->spec)) break;
    const size_t bytes = placement->spec.bytes;
    const int inside = bytes <= room && placement->offset <= room - bytes;
    if (!inside || placement->offset % align != 0) nc_wrong(r, field);
  }
  return placements;
}

/* Weights fill their section, one behind the other. */
static void check_weights(nc_reader *r, const nc_program *program, size_t size) {
  size_t end = 0;
  for (size_t i = 0; i < program->weight_count && r->wrong == NULL; ++i) {
    const nc_placement *weight = &program->weights[i];
    if (weight->offset != end) nc_wrong(r, "weights");
    end = (weight->offset + weight->spec.bytes + NC_ALIGN - 1) / NC_ALIGN * NC_ALIGN;
  }
  if (end != size) nc_wrong(r, "weights");
}

static void read_row_counts(nc_reader *r, const nc_json *array, nc_program *program) {
  size_t count, distinct = 0;
  char *seen = nc_new_array(r, program->output_count, 1);
  program->result_count = program->output_count;
  program->row_counts = nc_new_array(r, program->output_count, sizeof *program->row_counts);
  nc_read_array(r, array, "row_counts", 0, &count);
  if (count != 0 && count != program->output_count) nc_wrong(r, "row_counts");
  for (size_t i = 0; i < program->output_count && count == 0; ++i) {
    if (program->outputs[i].bounded) nc_wrong(r, "row_counts");
  }
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    size_t *position = &program->row_counts[i];
    if ((item->kind == NC_JSON_NULL) == program->outputs[i].bounded) nc_wrong(r, "row_counts");
    if (item->kind == NC_JSON_NULL || !nc_read_size(r, item, "row_counts", position)) continue;
    /* Counts come behind the outputs, and there are not more of them. */
    if (*position < program->output_count || *position >= 2 * program->output_count) {
      nc_wrong(r, "row_counts");
      break;
    }
    if (*position >= program->result_count) program->result_count = *position + 1;
    distinct += !seen[*position - program->output_count];
    seen[*position - program->output_count] = 1;
  }
  /* None of them is left out. */
  if (program->result_count > program->output_count + distinct) nc_wrong(r, "row_counts");
}

/* The number of a tensor, below `count`. */
static void read_tensor(nc_reader *r, const nc_json *value, const char *field, size_t count,
                        uint32_t *tensor) {
  size_t number = 0;
  if (nc_read_size(r, value, field, &number) && number >= count) nc_wrong(r, field);
  *tensor = (uint32_t)number;
}

static size_t count_wholes(const nc_program *program) {
  return program->input_count + program->weight_count + program->activation_count;
}

/* The number of the first slice. */
static size_t count_before_slices(const nc_program *program) {
  return count_wholes(program) + program->extent_count;
}

/* Shapes that only programs for chosen sizes have. */
static void read_extents(nc_reader *r, const nc_json *array, nc_program *program) {
  if (r->value_count == 0) return;
  program->extents =
      nc_read_array(r, array, "extents", sizeof *program->extents, &program->extent_count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < program->extent_count && r->wrong == NULL;
       ++i, item = nc_json_next(item)) {
    neocpu_spec *spec = &program->extents[i];
    int64_t *shape = nc_read_array(r, item, "extents", sizeof *shape, &spec->rank);
    const nc_json *extent = nc_json_first(item);
    for (size_t j = 0; j < spec->rank && r->wrong == NULL; ++j, extent = nc_json_next(extent)) {
      nc_read_integer(r, extent, "extents", &shape[j]);
    }
    spec->dtype = "uint8";
    spec->shape = shape;
  }
}

/* [repeat, tensor, whether backward, dtype, shape] */
static void read_slices(nc_reader *r, const nc_json *array, nc_program *program) {
  if (array == NULL) return; /* most models have none */
  program->slices =
      nc_read_array(r, array, "slices", sizeof *program->slices, &program->slice_count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < program->slice_count && r->wrong == NULL;
       ++i, item = nc_json_next(item)) {
    nc_slice *slice = &program->slices[i];
    const nc_json *repeat = nc_json_first(item);
    if (repeat == NULL || item->size != 5) {
      nc_wrong(r, "slices");
      return;
    }
    const nc_json *tensor = nc_json_next(repeat), *backward = nc_json_next(tensor);
    const nc_json *dtype = nc_json_next(backward);
    nc_read_size(r, repeat, "slices", &slice->repeat);
    read_tensor(r, tensor, "slices", count_wholes(program), &slice->tensor);
    slice->backward = backward->kind == NC_JSON_TRUE;
    if (!slice->backward && backward->kind != NC_JSON_FALSE) nc_wrong(r, "slices");
    nc_read_type(r, dtype, nc_json_next(dtype), "slices", &slice->spec);
    if (slice->spec.bytes % NC_ARGUMENT_ALIGN != 0) nc_wrong(r, "slices");
  }
}

static void read_calls(nc_reader *r, const nc_json *array, nc_program *program) {
  program->calls = nc_read_array(r, array, "calls", sizeof *program->calls, &program->call_count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < program->call_count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    nc_call_spec *call = &program->calls[i];
    const nc_json *part = nc_json_first(item);
    call->kernel = nc_read_string(r, part, "calls");
    if (call->kernel == NULL) return;
    call->count = item->size - 1;
    call->tensors = nc_new_array(r, call->count, sizeof *call->tensors);
    for (size_t j = 0; j < call->count && r->wrong == NULL; ++j) {
      part = nc_json_next(part);
      read_tensor(r, part, "calls", nc_program_tensor_count(program), &call->tensors[j]);
    }
  }
}

/* A tensor of one element that decides on a repeat; NC_NONE if the member is missing. */
static uint32_t read_decider(nc_reader *r, const nc_json *repeat, const char *member,
                             const nc_program *program, int integer, int boolean) {
  const nc_json *value = nc_json_member(repeat, member);
  uint32_t tensor;
  if (value == NULL || r->wrong != NULL) return NC_NONE;
  read_tensor(r, value, "repeats", count_wholes(program), &tensor);
  if (r->wrong != NULL) return NC_NONE;
  const neocpu_spec *spec = nc_program_tensor(program, tensor);
  const int fits = (integer && strcmp(spec->dtype, "int64") == 0 && spec->bytes == 8) ||
                   (boolean && strcmp(spec->dtype, "bool") == 0 && spec->bytes == 1);
  if (!fits) nc_wrong(r, "repeats");
  return tensor;
}

/* Whether a repeat is of calls there are, and within every one before that is not over. */
static int is_nested(const nc_program *program, size_t index) {
  const nc_repeat *mine = &program->repeats[index];
  if (mine->first >= mine->end || mine->end > program->call_count) return 0;
  if (index > 0 && mine->first < program->repeats[index - 1].first) return 0;
  for (size_t i = 0; i < index; ++i) {
    if (program->repeats[i].end > mine->first && program->repeats[i].end < mine->end) return 0;
  }
  return 1;
}

/* {"first", "end", "limit"} and perhaps {"count", "unless", "while", "index"} */
static void read_repeats(nc_reader *r, const nc_json *array, nc_program *program) {
  if (array == NULL) return;
  program->repeats =
      nc_read_array(r, array, "repeats", sizeof *program->repeats, &program->repeat_count);
  if (program->repeat_count > MAX_REPEATS) nc_wrong(r, "repeats");
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < program->repeat_count && r->wrong == NULL;
       ++i, item = nc_json_next(item)) {
    nc_repeat *repeat = &program->repeats[i];
    nc_read_size(r, nc_json_member(item, "first"), "repeats", &repeat->first);
    nc_read_size(r, nc_json_member(item, "end"), "repeats", &repeat->end);
    nc_read_size(r, nc_json_member(item, "limit"), "repeats", &repeat->limit);
    repeat->count = read_decider(r, item, "count", program, 1, 1);
    repeat->unless = read_decider(r, item, "unless", program, 0, 1);
    repeat->condition = read_decider(r, item, "while", program, 0, 1);
    repeat->index = read_decider(r, item, "index", program, 1, 0);
    if (r->wrong == NULL && !is_nested(program, i)) nc_wrong(r, "repeats");
    /* It is written, which weights and inputs are not. */
    if (repeat->index < program->input_count + program->weight_count) nc_wrong(r, "repeats");
  }
}

/* Whether a repeat neither begins nor ends between the calls of a launch. */
static int is_apart(const nc_repeat *repeat, const nc_launch *launch) {
  const size_t last = launch->first + launch->count - 1;
  return (repeat->first <= launch->first || repeat->first > last) &&
         (repeat->end <= launch->first || repeat->end > last);
}

/* [first, count] */
static void read_launches(nc_reader *r, const nc_json *array, nc_program *program) {
  if (array == NULL) return;
  program->launches =
      nc_read_array(r, array, "launches", sizeof *program->launches, &program->launch_count);
  const nc_json *item = nc_json_first(array);
  size_t free = 0; /* the first call that is in no launch yet */
  for (size_t i = 0; i < program->launch_count && r->wrong == NULL;
       ++i, item = nc_json_next(item)) {
    nc_launch *launch = &program->launches[i];
    const nc_json *first = nc_json_first(item);
    if (first == NULL || item->size != 2 || !nc_read_size(r, first, "launches", &launch->first) ||
        !nc_read_size(r, nc_json_next(first), "launches", &launch->count) || launch->count < 2 ||
        launch->count > NC_MAX_LAUNCH || launch->first < free ||
        launch->first > program->call_count ||
        launch->count > program->call_count - launch->first) {
      nc_wrong(r, "launches");
      return;
    }
    free = launch->first + launch->count;
    for (size_t j = 0; j < program->repeat_count; ++j) {
      if (!is_apart(&program->repeats[j], launch)) nc_wrong(r, "launches");
    }
  }
}

/* Slices lie in their tensors, and are used where they move. */
static void check_slices(nc_reader *r, const nc_program *program) {
  for (size_t i = 0; i < program->slice_count && r->wrong == NULL; ++i) {
    const nc_slice *slice = &program->slices[i];
    const size_t room = nc_program_tensor(program, slice->tensor)->bytes;
    if (slice->repeat >= program->repeat_count) {
      nc_wrong(r, "slices");
    } else if (slice->spec.bytes > 0 &&
               program->repeats[slice->repeat].limit > room / slice->spec.bytes) {
      nc_wrong(r, "slices");
    }
  }
  for (size_t i = 0; i < program->call_count && r->wrong == NULL; ++i) {
    for (size_t j = 0; j < program->calls[i].count; ++j) {
      const size_t tensor = program->calls[i].tensors[j], first = count_before_slices(program);
      if (tensor < first) continue;
      const nc_repeat *repeat = &program->repeats[program->slices[tensor - first].repeat];
      if (i < repeat->first || i >= repeat->end) nc_wrong(r, "slices");
    }
  }
}

size_t nc_program_tensor_count(const nc_program *program) {
  return count_before_slices(program) + program->slice_count;
}

uint32_t nc_program_whole(const nc_program *program, uint32_t tensor) {
  const size_t first = count_before_slices(program);
  return tensor < first ? tensor : program->slices[tensor - first].tensor;
}

int nc_program_is_activation(const nc_program *program, uint32_t tensor) {
  const size_t whole = nc_program_whole(program, tensor);
  return whole >= program->input_count + program->weight_count && whole < count_wholes(program);
}

const neocpu_spec *nc_program_tensor(const nc_program *program, size_t tensor) {
  if (tensor < program->input_count) return &program->inputs[tensor];
  tensor -= program->input_count;
  if (tensor < program->weight_count) return &program->weights[tensor].spec;
  tensor -= program->weight_count;
  if (tensor < program->activation_count) return &program->activations[tensor].spec;
  tensor -= program->activation_count;
  if (tensor < program->extent_count) return &program->extents[tensor];
  return &program->slices[tensor - program->extent_count].spec;
}

/* The tensors of outputs and of the counts behind them, each of one int64. */
static void read_returns(nc_reader *r, const nc_json *array, nc_program *program) {
  size_t count;
  program->returns = nc_read_array(r, array, "returns", sizeof *program->returns, &count);
  if (count != program->result_count) nc_wrong(r, "returns");
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    read_tensor(r, item, "returns", count_wholes(program), &program->returns[i]);
    const size_t bytes =
        i < program->output_count ? program->outputs[i].bytes : sizeof(int64_t);
    if (r->wrong == NULL && nc_program_tensor(program, program->returns[i])->bytes != bytes) {
      nc_wrong(r, "returns");
    }
  }
}

/* Weights, which lie in `room` bytes, and activations, which start on multiples of `align`. */
static void read_memory(nc_reader *r, const nc_json *object, size_t room, size_t align,
                        nc_program *program) {
  const size_t values = r->value_count;
  r->value_count = 0; /* weights are the same for all sizes */
  program->weights = read_placements(r, nc_json_member(object, "weights"), "weights", room,
                                     NC_ALIGN, &program->weight_count);
  r->value_count = values;
  nc_read_sized(r, nc_json_member(object, "arena_bytes"), "arena_bytes", &program->arena_bytes);
  program->activations = read_placements(r, nc_json_member(object, "activations"), "activations",
                                         program->arena_bytes, align, &program->activation_count);
}

void nc_prologue_read(nc_reader *r, const nc_json *object, size_t weights_size,
                      nc_program *prologue) {
  size_t offset = 0;
  nc_read_size(r, nc_json_member(object, "offset"), "prologue", &offset);
  if (offset != weights_size) nc_wrong(r, "prologue");
  read_memory(r, object, weights_size, NC_ALIGN, prologue);
  if (r->wrong == NULL) read_calls(r, nc_json_member(object, "calls"), prologue);
}

void nc_program_read(nc_reader *r, const nc_json *object, size_t weights_size, int alone,
                     nc_program *program) {
  const nc_json *plan = nc_json_member(object, "plan");
  program->inputs = read_specs(r, nc_json_member(object, "inputs"), "inputs",
                               &program->input_count);
  program->outputs = read_specs(r, nc_json_member(object, "outputs"), "outputs",
                                &program->output_count);
  if (program->output_count == 0) nc_wrong(r, "outputs");
  if (plan == NULL || plan->kind != NC_JSON_OBJECT) nc_wrong(r, "plan");
  if (r->wrong != NULL) return;
  read_row_counts(r, nc_json_member(object, "row_counts"), program);
  read_memory(r, object, weights_size, NC_ARGUMENT_ALIGN, program);
  if (alone) check_weights(r, program, weights_size);
  read_extents(r, nc_json_member(object, "extents"), program);
  if (r->wrong != NULL) return;
  read_slices(r, nc_json_member(object, "slices"), program);
  read_calls(r, nc_json_member(object, "calls"), program);
  read_repeats(r, nc_json_member(object, "repeats"), program);
  check_slices(r, program);
  read_launches(r, nc_json_member(object, "launches"), program);
  read_returns(r, nc_json_member(object, "returns"), program);
}
