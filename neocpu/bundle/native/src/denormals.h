/* Denormal numbers are zero in the threads that run kernels. */
#ifndef NEOCPU_DENORMALS_H_
#define NEOCPU_DENORMALS_H_

/* Make the calling thread, and those it starts from now on, compute without denormals. */
void nc_flush_denormals(void);

#endif
