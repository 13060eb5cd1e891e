/* A strict JSON reader (RFC 8259) for small documents from files: values stay in the text and never
 * leave it but through a checked accessor. */
#ifndef NEOCPU_JSON_H_
#define NEOCPU_JSON_H_

#include <stddef.h>
#include <stdint.h>

typedef enum nc_json_kind {
  NC_JSON_NULL,
  NC_JSON_FALSE,
  NC_JSON_TRUE,
  NC_JSON_NUMBER,
  NC_JSON_STRING,
  NC_JSON_ARRAY,
  NC_JSON_OBJECT,
} nc_json_kind;

/* One value. Those of a document lie in one array, in the order of the text: an array's elements
 * follow it, and so do an object's keys and values in turn. */
typedef struct nc_json {
  nc_json_kind kind;
  uint32_t size;  /* elements of an array, members of an object */
  uint32_t extent; /* values from this one to the last one in it, itself included */
  const char *text; /* a number's characters; a string's, unescaped, and a zero */
  size_t length;
} nc_json;

/* Read a whole document, behind which lies a zero. Return its values, the root first, to be freed
 * by free(); or null with *problem saying why (a constant string). The text must outlive them, and
 * is no JSON any more: strings are unescaped where they lie. */
nc_json *nc_json_read(char *text, size_t length, const char **problem);

/* The value of an object's member; null if there is none, or `value` is null or no object. */
const nc_json *nc_json_member(const nc_json *value, const char *key);

/* The first element of an array; null if there is none, or `value` is null or no array. */
const nc_json *nc_json_first(const nc_json *value);

/* The element behind one that is not the last. */
const nc_json *nc_json_next(const nc_json *value);

/* Write an integer of at least 0; return whether the value is one (null is not). */
int nc_json_integer(const nc_json *value, int64_t *integer);

/* The same of any integer. */
int nc_json_signed(const nc_json *value, int64_t *integer);

/* A string in UTF-8, of `length` bytes; null if the value is none, or has a zero inside. */
const char *nc_json_text(const nc_json *value);

/* Whether the value is a string of these characters. */
int nc_json_equals(const nc_json *value, const char *text);

#endif
