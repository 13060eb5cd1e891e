/* Denormal numbers are zero where kernels run. */
#ifndef NEOCPU_DENORMALS_H_
#define NEOCPU_DENORMALS_H_

#include <stdint.h>

/* Make the calling thread, and those it starts from now on, compute without denormals. Return how
 * it did before. */
uint64_t nc_flush_denormals(void);

void nc_restore_denormals(uint64_t before);

#endif
