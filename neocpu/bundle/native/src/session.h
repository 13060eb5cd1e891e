/* The virtual machine of one model, with its weights and its memory. All of it runs on the model's
 * worker. */
#ifndef NEOCPU_SESSION_H_
#define NEOCPU_SESSION_H_

#include "artifact.h"
#include "tvm.h"

typedef struct nc_session {
  const nc_header *header;
  nc_value main_function;
  nc_value *arguments; /* inputs, weights, activations */
  size_t argument_count;
  void **staging; /* of each input: an aligned buffer, once it was needed */
  void *arena, *weights; /* anonymous memory; the latter is a copy of the weights, or null */
  size_t arena_size, weights_size;
} nc_session;

/* Make the thread's pool, describe the memory, load the code, and have it compare its own idea of
 * that memory. `path` is for messages. Free with nc_session_free, also after a failure. */
neocpu_status nc_session_start(nc_session *session, const nc_artifact *artifact, const char *path,
                               int threads, int huge_pages);

/* Run the model; *result is to be released. */
neocpu_status nc_session_run(nc_session *session, const neocpu_input *inputs,
                             const neocpu_output *outputs, nc_value *result);

/* Copy what the run returned to the caller's outputs: of bounded ones, the rows that count. */
neocpu_status nc_session_copy(const nc_session *session, const nc_value *result,
                              neocpu_output *outputs);

void nc_session_free(nc_session *session);

#endif
