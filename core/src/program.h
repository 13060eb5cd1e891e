/* The calls of a program, held to the code they call. */
#ifndef NEOCPU_PROGRAM_H_
#define NEOCPU_PROGRAM_H_

#include "session.h"

/* Make the arguments of every call of the session, whose tensors and code are there.
 *
 * A call is refused unless its kernel is in the code and takes as many tensors, of as many bytes and
 * the same types; it writes only activations, and none of them overlaps another that it takes. Places
 * of tensors were checked with the header. */
neocpu_status nc_program_prepare(nc_session *session, const char *path);

#endif
