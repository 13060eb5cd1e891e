/* The name LLVM has for this machine's CPU, to prefer code that was compiled for this very one. */
#ifndef NEOCPU_HOST_CPU_H_
#define NEOCPU_HOST_CPU_H_

/* The name of the first CPU, such as "znver4"; empty if it is none of those known here. */
const char *nc_host_cpu(void);

#endif
