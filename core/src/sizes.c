#include "sizes.h"

#include <stdio.h>
#include <string.h>

#include "error.h"

static void read_size(nc_reader *r, const nc_json *item, neocpu_size *size) {
  size_t least = 0, most = 0, step = 0, typical = 0;
  size->name = nc_read_string(r, nc_json_member(item, "name"), "sizes");
  nc_read_size(r, nc_json_member(item, "least"), "sizes", &least);
  nc_read_size(r, nc_json_member(item, "most"), "sizes", &most);
  nc_read_size(r, nc_json_member(item, "step"), "sizes", &step);
  nc_read_size(r, nc_json_member(item, "typical"), "sizes", &typical);
  if (r->wrong != NULL) return;
  if (least < 1 || least > typical || typical > most || step < 1 || (typical - least) % step != 0 ||
      (most - least) % step != 0) {
    nc_wrong(r, "sizes");
  }
  size->least = (int64_t)least;
  size->most = (int64_t)most;
  size->step = (int64_t)step;
  size->typical = (int64_t)typical;
}

/* Find an input and its axis where each size is read off; all have one. */
static void find_axes(nc_reader *r, const nc_json *inputs, nc_sizes *sizes) {
  size_t found = 0, number;
  int known[NC_MAX_SIZES] = {0};
  const nc_json *input = nc_json_first(inputs);
  for (size_t i = 0; input != NULL && i < inputs->size; ++i, input = nc_json_next(input)) {
    const nc_json *shape = nc_json_member(input, "shape"), *extent = nc_json_first(shape);
    for (size_t j = 0; extent != NULL && j < shape->size; ++j, extent = nc_json_next(extent)) {
      if (!nc_read_reference(extent, sizes->count, &number) || known[number]) continue;
      known[number] = 1;
      sizes->sizes[number].input = i;
      sizes->sizes[number].axis = j;
      ++found;
    }
  }
  if (found < sizes->count) nc_wrong(r, "sizes");
}

/* An integer, or a reference to one of the values before, of which there are `count`. */
static void read_operand(nc_reader *r, const nc_json *value, size_t count, nc_operand *operand) {
  size_t number;
  operand->is_reference = nc_read_reference(value, count, &number);
  if (operand->is_reference) {
    operand->integer = (int64_t)number;
  } else if (!nc_json_signed(value, &operand->integer)) {
    nc_wrong(r, "values");
  }
}

static char read_kind(nc_reader *r, const nc_json *value) {
  static const struct {
    const char *word;
    char kind;
  } kinds[] = {{"+", '+'}, {"-", '-'}, {"*", '*'}, {"//", '/'}, {"max", 'm'}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    if (nc_json_equals(value, kinds[i].word)) return kinds[i].kind;
  }
  nc_wrong(r, "values");
  return 0;
}

/* [operation, left, right] */
static void read_operations(nc_reader *r, const nc_json *array, nc_sizes *sizes) {
  sizes->operations =
      nc_read_array(r, array, "values", sizeof *sizes->operations, &sizes->operation_count);
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < sizes->operation_count && r->wrong == NULL;
       ++i, item = nc_json_next(item)) {
    nc_operation *operation = &sizes->operations[i];
    const nc_json *kind = nc_json_first(item);
    if (kind == NULL || item->size != 3) {
      nc_wrong(r, "values");
      return;
    }
    const nc_json *left = nc_json_next(kind);
    operation->kind = read_kind(r, kind);
    read_operand(r, left, sizes->count + i, &operation->left);
    read_operand(r, nc_json_next(left), sizes->count + i, &operation->right);
  }
}

void nc_sizes_read(nc_reader *r, const nc_json *root, nc_sizes *sizes) {
  const nc_json *array = nc_json_member(root, "sizes");
  sizes->sizes = nc_read_array(r, array, "sizes", sizeof *sizes->sizes, &sizes->count);
  if (sizes->count < 1 || sizes->count > NC_MAX_SIZES) nc_wrong(r, "sizes");
  const nc_json *item = nc_json_first(array);
  for (size_t i = 0; i < sizes->count && r->wrong == NULL; ++i, item = nc_json_next(item)) {
    read_size(r, item, &sizes->sizes[i]);
    for (size_t j = 0; j < i && r->wrong == NULL; ++j) {
      if (strcmp(sizes->sizes[i].name, sizes->sizes[j].name) == 0) nc_wrong(r, "sizes");
    }
  }
  if (r->wrong == NULL) find_axes(r, nc_json_member(root, "inputs"), sizes);
  if (r->wrong == NULL) read_operations(r, nc_json_member(root, "values"), sizes);
}

size_t nc_sizes_value_count(const nc_sizes *sizes) { return sizes->count + sizes->operation_count; }

static int64_t find_operand(const nc_operand *operand, const int64_t *values) {
  return operand->is_reference ? values[operand->integer] : operand->integer;
}

static int apply(char kind, int64_t left, int64_t right, int64_t *result) {
  switch (kind) {
    case '+':
      return !__builtin_add_overflow(left, right, result);
    case '-':
      return !__builtin_sub_overflow(left, right, result);
    case '*':
      return !__builtin_mul_overflow(left, right, result);
    case '/':
      if (right <= 0) return 0;
      *result = left / right - (left % right < 0);
      return 1;
    default:
      *result = left > right ? left : right;
      return 1;
  }
}

int nc_sizes_evaluate(const nc_sizes *sizes, const int64_t *chosen, int64_t *values) {
  memcpy(values, chosen, sizes->count * sizeof *values);
  for (size_t i = 0; i < sizes->operation_count; ++i) {
    const nc_operation *one = &sizes->operations[i];
    const int64_t left = find_operand(&one->left, values);
    const int64_t right = find_operand(&one->right, values);
    if (!apply(one->kind, left, right, &values[sizes->count + i])) return 0;
  }
  return 1;
}

/* The one that is nearest to a value, the larger of two. */
static int64_t find_nearest(const neocpu_size *size, int64_t value) {
  if (value <= size->least) return size->least;
  if (value >= size->most) return size->most;
  const int64_t steps = (2 * (value - size->least) + size->step) / (2 * size->step);
  return size->least + steps * size->step;
}

neocpu_status nc_sizes_check(const nc_sizes *sizes, const int64_t *chosen, const char *model) {
  for (size_t i = 0; i < sizes->count; ++i) {
    const neocpu_size *size = &sizes->sizes[i];
    const int64_t nearest = find_nearest(size, chosen[i]);
    char steps[48] = "";
    if (nearest == chosen[i]) continue;
    if (size->step > 1) snprintf(steps, sizeof steps, " in steps of %lld", (long long)size->step);
    return nc_fail(NEOCPU_USAGE,
                   "size '%s' of model '%s' is %lld, and it takes %lld..%lld%s: the nearest is %lld",
                   size->name, model, (long long)chosen[i], (long long)size->least,
                   (long long)size->most, steps, (long long)nearest);
  }
  return NEOCPU_OK;
}

void nc_sizes_typical(const nc_sizes *sizes, int64_t *chosen) {
  for (size_t i = 0; i < sizes->count; ++i) chosen[i] = sizes->sizes[i].typical;
}

void nc_sizes_most(const nc_sizes *sizes, int64_t *chosen) {
  for (size_t i = 0; i < sizes->count; ++i) chosen[i] = sizes->sizes[i].most;
}

void nc_sizes_text(const nc_sizes *sizes, const int64_t *chosen, char *text) {
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < sizes->count && used < NC_SIZES_TEXT; ++i) {
    used += (size_t)snprintf(text + used, NC_SIZES_TEXT - used, "%s%s=%lld", i > 0 ? ", " : "",
                             sizes->sizes[i].name, (long long)chosen[i]);
  }
}
