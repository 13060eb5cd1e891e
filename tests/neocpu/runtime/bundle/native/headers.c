/* headers BYTES-OF-WEIGHTS: read headers from the standard input, each behind its length in four
 * bytes, and print of each whether it was read. */
#include <stdio.h>
#include <stdlib.h>

#include "src/header.h"

int main(int count, char **words) {
  const size_t weights = count > 1 ? strtoull(words[1], NULL, 10) : 0;
  uint32_t size;
  while (fread(&size, sizeof size, 1, stdin) == 1) {
    char *text = calloc(1, size + (size_t)1);
    if (text == NULL || fread(text, 1, size, stdin) != size) return 1;
    nc_header header;
    const int read = nc_header_read("stdin", text, size, weights, &header) == NEOCPU_OK;
    if (read) nc_header_free(&header);
    putchar(read ? 'y' : 'n');
  }
  return 0;
}
