/* What this machine can run: instruction sets and CPUs. */
#ifndef NEOCPU_FEATURES_H_
#define NEOCPU_FEATURES_H_

#include <stddef.h>

/* Write those of `required` (LLVM's names) that this machine, or its operating system, lacks into
 * `missing`, separated by commas; return how many. A name not known here counts as missing. */
size_t nc_missing_features(const char *const *required, size_t count, char *missing, size_t size);

#endif
