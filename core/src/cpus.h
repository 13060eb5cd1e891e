/* The CPUs this process may keep busy. */
#ifndef NEOCPU_CPUS_H_
#define NEOCPU_CPUS_H_

/* By its affinity and the CPU quota of its control groups (versions 1 and 2); at least one. A
 * fractional quota is rounded down: threads beyond it spin, and get the group throttled. */
int nc_usable_cpus(void);

/* CPUs that the calling thread may run on (affinity). */
int nc_allowed_cpus(void);

#endif
