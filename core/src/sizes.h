/* The sizes of inputs that calls of a model may choose, and the integers that follow from them. */
#ifndef NEOCPU_SIZES_H_
#define NEOCPU_SIZES_H_

#include "fields.h"
#include "neocpu.h"

enum {
  NC_MAX_SIZES = 16,
  NC_SIZES_TEXT = 512 /* bytes of a list of sizes */
};

/* An integer, or the value of that number. */
typedef struct nc_operand {
  int64_t integer;
  int is_reference;
} nc_operand;

typedef struct nc_operation {
  char kind; /* '+', '-', '*', '/', rounded down, or 'm', the larger one */
  nc_operand left, right;
} nc_operation;

/* Values are numbered: first the sizes, then the results of operations. */
typedef struct nc_sizes {
  neocpu_size *sizes;
  size_t count; /* 0: all shapes are fixed */
  nc_operation *operations;
  size_t operation_count;
} nc_sizes;

/* Read the members "sizes" and "values" of a header. */
void nc_sizes_read(nc_reader *r, const nc_json *root, nc_sizes *sizes);

/* The number of values. */
size_t nc_sizes_value_count(const nc_sizes *sizes);

/* Write all values for some sizes; return 0 if a number overflows, or a divisor is not positive. */
int nc_sizes_evaluate(const nc_sizes *sizes, const int64_t *chosen, int64_t *values);

/* Refuse what is not in the ranges; `model` is for the message. */
neocpu_status nc_sizes_check(const nc_sizes *sizes, const int64_t *chosen, const char *model);

/* Write the typical sizes, or the largest. */
void nc_sizes_typical(const nc_sizes *sizes, int64_t *chosen);
void nc_sizes_most(const nc_sizes *sizes, int64_t *chosen);

/* Write names and sizes into NC_SIZES_TEXT bytes, as far as there is room: h=64, w=96 */
void nc_sizes_text(const nc_sizes *sizes, const int64_t *chosen, char *text);

#endif
