/* A program that is ready to run: its tensors, and its calls as lists of arguments. */
#ifndef NEOCPU_SESSION_H_
#define NEOCPU_SESSION_H_

#include "code.h"
#include "header.h"
#include "interception.h"
#include "pool.h"
#include "tensor.h"

/* A kernel and its arguments. */
typedef struct nc_call {
  const nc_kernel *kernel;
  const nc_value *arguments;
  const uint32_t *tasks; /* of each of its loops, see nc_pool_expect */
  size_t batch;          /* the number of calls of a launch, at its first one */
} nc_call;

/* Memory for a copy of an input that kernels cannot read in its place. */
typedef struct nc_staging {
  void *data;  /* an aligned buffer, once it was needed, or from the start */
  size_t size; /* the bytes that the largest program needs, or the largest sizes */
} nc_staging;

/* The places of weights: of those in the file and, from `size` bytes on, of those made of them. */
typedef struct nc_weights {
  char *stored, *made;
  size_t size; /* of the stored ones */
} nc_weights;

/* Resources that the sessions of a model share. One of them runs at a time. */
typedef struct nc_shared {
  nc_pool *pool;
  nc_interception interception; /* all zero: none */
  nc_trace *trace;              /* of their runs; null: none */
  nc_code code;
  void *arena;         /* anonymous memory; null: none is needed */
  nc_staging *staging; /* of each input */
} nc_shared;

/* A tensor that moves with an output to where the caller wants that. */
typedef struct nc_move {
  uint32_t tensor;
  size_t output, offset; /* in bytes, from the output's start */
  void *place;           /* in the arena */
} nc_move;

typedef struct nc_session {
  const nc_program *program;
  nc_shared *shared;
  size_t first_call;  /* the number of calls that the programs before this one make */
  nc_tensor *tensors; /* inputs, weights, activations, …: what calls name by number */
  nc_call *calls;
  nc_value *arguments; /* of all calls */
  uint32_t *tasks;     /* of all calls */
  nc_move *moves;      /* tensors that are computed at the caller's places */
  size_t move_count;
  int shares_loops;    /* whether there is a loop of several tasks */
} nc_session;

/* Get memory, and check every call against the code: then none reads or writes outside its tensors.
 * The session knows its program and what it shares. `path` is for messages. Free with
 * nc_session_free, also after a failure.
 *
 * A session may start again, with a program that differs in shapes and places alone: then it keeps its
 * memory. */
neocpu_status nc_session_start(nc_session *session, nc_weights weights, const char *path);

/* Run the program; its outputs are then at the caller's: of bounded ones, the rows that count. Between
 * nc_pool_enter and nc_pool_leave. */
neocpu_status nc_session_run(nc_session *session, const neocpu_input *inputs,
                             neocpu_output *outputs);

void nc_session_free(nc_session *session);

#endif
