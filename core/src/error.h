/* The message of the calling thread's last failure. */
#ifndef NEOCPU_ERROR_H_
#define NEOCPU_ERROR_H_

#include "neocpu.h"

enum { NC_MESSAGE_SIZE = 1024 };

/* Remember a message, made one line; return `status`. */
__attribute__((format(printf, 2, 3))) neocpu_status nc_fail(neocpu_status status,
                                                            const char *format, ...);

#endif
