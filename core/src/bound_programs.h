/* Programs of a model whose calls choose sizes, ready to run for the sizes that came last. */
#ifndef NEOCPU_BOUND_PROGRAMS_H_
#define NEOCPU_BOUND_PROGRAMS_H_

#include "session.h"

enum { NC_BOUND_PROGRAMS = 16 };

/* The program for some sizes. Another one takes its memory over. */
typedef struct nc_bound_program {
  int64_t sizes[NC_MAX_SIZES];
  uint64_t used; /* the number of the last call that asked for it; 0: it is not ready */
  void *memory;  /* of the program */
  nc_program program;
  nc_session session;
} nc_bound_program;

typedef struct nc_bound_programs {
  const nc_header *header;
  nc_session *typical; /* that of the typical sizes, which is always ready */
  nc_weights weights;
  const char *path; /* for messages */
  int64_t *values;  /* of the sizes that are being bound */
  nc_bound_program *programs;
  uint64_t calls;
} nc_bound_programs;

/* Get memory. The header and the session for the typical sizes stay as long. Free with
 * nc_bound_programs_free, also after a failure. */
neocpu_status nc_bound_programs_start(nc_bound_programs *bound, const nc_header *header,
                                      nc_session *typical, nc_weights weights, const char *path);

/* Find the session for sizes that are in their ranges, or bind them: evaluate what depends on them, and
 * check it as if the model were compiled for them. One thread calls this at a time, and runs the
 * session before the next one does. */
neocpu_status nc_bound_programs_find(nc_bound_programs *bound, const int64_t *sizes,
                                     nc_session **session);

void nc_bound_programs_free(nc_bound_programs *bound);

#endif
