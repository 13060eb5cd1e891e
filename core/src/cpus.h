/* The CPUs this process may keep busy. */
#ifndef NEOCPU_CPUS_H_
#define NEOCPU_CPUS_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>

/* The folder in which the system describes its CPUs. */
#define NC_DEVICES "/sys/devices"

/* The number of CPUs by affinity and the CPU quota of control groups (versions 1 and 2), at least one.
 * A fractional quota is rounded down: threads beyond it spin, and get the group throttled. */
int nc_usable_cpus(void);

/* The same of the CPUs that nc_performance_cpus finds; of all, if it finds none. */
int nc_usable_performance_cpus(void);

/* Write which CPUs that the calling thread may run on are of performance cores, by what a folder as
 * NC_DEVICES says; return how many. None if it does not tell: of most machines, where all are alike. */
int nc_performance_cpus(const char *devices, cpu_set_t *found);

/* CPUs that the calling thread may run on (affinity). */
int nc_allowed_cpus(void);

#endif
