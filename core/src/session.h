/* A model that is ready to run: its memory, and its calls as lists of arguments. */
#ifndef NEOCPU_SESSION_H_
#define NEOCPU_SESSION_H_

#include "code.h"
#include "interception.h"
#include "pool.h"
#include "source.h"

/* DLPack's description of an array (DLTensor). */
typedef struct nc_tensor {
  void *data;
  int32_t device_type, device_id, rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides; /* strides in elements; null: C order without gaps */
  uint64_t byte_offset;
} nc_tensor;

/* A kernel and its arguments. */
typedef struct nc_call {
  const nc_kernel *kernel;
  const nc_value *arguments;
  const uint32_t *tasks; /* of each of its loops, see nc_pool_expect */
} nc_call;

typedef struct nc_session {
  const nc_header *header;
  nc_pool *pool;
  nc_interception interception; /* all zero: none */
  nc_trace *trace;              /* of its runs; null: none */
  nc_code code;
  nc_tensor *tensors; /* inputs, weights, activations: what calls name by number */
  nc_call *calls;
  nc_value *arguments; /* of all calls */
  uint32_t *tasks;     /* of all calls */
  void **staging;      /* of each input: an aligned buffer, once it was needed */
  void **places;       /* of each output that may lie elsewhere: its place in the arena, else null */
  void *arena;         /* anonymous memory; null: none is needed */
  size_t arena_size;
  int shares_loops; /* whether there is a loop of several tasks */
} nc_session;

/* Get memory, load the code of a source that stays as long, and check every call against it: then
 * none reads or writes outside its tensors. Free with nc_session_free, also after a failure. */
neocpu_status nc_session_start(nc_session *session, const nc_source *source, nc_pool *pool);

/* Run the model; its outputs are then at the caller's: of bounded ones, the rows that count. Between
 * nc_pool_enter and nc_pool_leave. */
neocpu_status nc_session_run(nc_session *session, const neocpu_input *inputs,
                             neocpu_output *outputs);

/* Have calls of kernels made, and their workspaces lent, by somebody else from now on. */
void nc_session_intercept(nc_session *session, const nc_interception *interception);

void nc_session_free(nc_session *session);

#endif
