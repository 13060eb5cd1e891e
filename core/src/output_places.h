/* Outputs that kernels can compute at the places which the caller wants. */
#ifndef NEOCPU_OUTPUT_PLACES_H_
#define NEOCPU_OUTPUT_PLACES_H_

#include "session.h"

/* Find the moves of a session whose calls are checked.
 *
 * With an output move all tensors within its place that are used from some call on: from then on no
 * other one has bytes of it, before no call uses any of them, and nothing of what is read there was
 * written before. Outputs of which that cannot be said are copied after a run. */
neocpu_status nc_find_moves(nc_session *session);

/* Have those outputs computed at the caller's, where that is aligned, and others in the arena. */
void nc_place_outputs(nc_session *session, const neocpu_output *outputs);

#endif
