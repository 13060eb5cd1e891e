#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[NC_MESSAGE_SIZE];

neocpu_status nc_fail(neocpu_status status, const char *format, ...) {
  char text[NC_MESSAGE_SIZE]; /* an argument may be the last message */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  size_t i = 0;
  for (; text[i] != '\0'; ++i) message[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i];
  message[i] = '\0';
  return status;
}

const char *neocpu_error(void) { return message; }
