/* The instruction sets that this machine can run. */
#ifndef NEOCPU_FEATURES_H_
#define NEOCPU_FEATURES_H_

#include <stddef.h>

#include "neocpu.h"

/* Write those of `required` (LLVM's names) that this machine, or its operating system, lacks into
 * `missing`, separated by commas; return how many. A name not known here counts as missing. */
size_t nc_missing_features(const char *const *required, size_t count, char *missing, size_t size);

/* Ask the system for tile registers, which all threads of this process may use from then on; return
 * whether it grants them. An instruction that touches a tile without that ends the process. Asking
 * again takes a tenth of a microsecond. */
NEOCPU_API int neocpu_permit_tiles(void);

#endif
