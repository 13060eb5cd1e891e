/* The fields of a header that say what it does for one signature. */
#ifndef NEOCPU_PROGRAM_FIELDS_H_
#define NEOCPU_PROGRAM_FIELDS_H_

#include "fields.h"
#include "header.h"

/* Read a program from the members of an object. Its weights lie in `weights_size` bytes; if it is the
 * only one, they fill them. */
void nc_program_read(nc_reader *r, const nc_json *object, size_t weights_size, int alone,
                     nc_program *program);

/* Read the program that packs weights when a model is loaded. It has no ends: of weights in the file
 * it makes others, which lie behind them. */
void nc_prologue_read(nc_reader *r, const nc_json *object, size_t weights_size,
                      nc_program *prologue);

#endif
