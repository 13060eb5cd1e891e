#include "json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 32, LIMIT = 1 << 24 /* values */ };

typedef struct reader {
  char *at;
  const char *end;
  nc_json *values;
  size_t count, room;
  const char *problem;
} reader;

static int fail(reader *r, const char *problem) {
  if (r->problem == NULL) r->problem = problem;
  return 0;
}

static void skip_space(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) {
    ++r->at;
  }
}

static int take(reader *r, char c) {
  if (r->at == r->end || *r->at != c) return 0;
  ++r->at;
  return 1;
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int digits(reader *r) {
  const char *start = r->at;
  while (r->at < r->end && is_digit(*r->at)) ++r->at;
  return r->at > start;
}

/* Index of a new value; LIMIT if there is no room for it. */
static size_t add(reader *r, nc_json_kind kind) {
  if (r->count == r->room) {
    const size_t room = r->room == 0 ? 256 : 2 * r->room;
    nc_json *values = room > LIMIT ? NULL : realloc(r->values, room * sizeof *values);
    if (values == NULL) {
      fail(r, "too many values");
      return LIMIT;
    }
    r->values = values;
    r->room = room;
  }
  r->values[r->count] = (nc_json){.kind = kind, .extent = 1, .text = r->at};
  return r->count++;
}

/* -1 if these are not four hexadecimal digits. */
static int32_t hex4(const char *at, const char *end) {
  if (end - at < 4) return -1;
  int32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = at[i], low = (char)(c | 0x20);
    if (!is_digit(c) && (low < 'a' || low > 'f')) return -1;
    code = code * 16 + (is_digit(c) ? c - '0' : low - 'a' + 10);
  }
  return code;
}

/* Bytes of the UTF-8 sequence that starts here; 0 if it is none (RFC 3629). */
static size_t utf8_length(const char *text, const char *end) {
  const unsigned char *c = (const unsigned char *)text;
  const size_t left = (size_t)(end - text);
  if (c[0] < 0x80) return 1;
  const size_t length = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
  if (c[0] < 0xc2 || c[0] > 0xf4 || left < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((c[i] & 0xc0) != 0x80) return 0;
  }
  const int overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
  const int outside = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
  return overlong || outside ? 0 : length;
}

static char *put_utf8(char *out, uint32_t code) {
  if (code < 0x80) {
    *out++ = (char)code;
    return out;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
  *out++ = (char)(lead[more] | code >> 6 * more);
  for (int i = more - 1; i >= 0; --i) *out++ = (char)(0x80 | (code >> 6 * i & 0x3f));
  return out;
}

/* The code point of the \u escape whose digits start here, and of the one behind it if they are a
 * surrogate pair; -1 if it is none, or half of a pair. */
static int32_t escaped_code(reader *r) {
  const int32_t high = hex4(r->at, r->end);
  if (high < 0) return -1;
  r->at += 4;
  if (high < 0xd800 || high > 0xdfff) return high;
  if (high > 0xdbff || !take(r, '\\') || !take(r, 'u')) return -1;
  const int32_t low = hex4(r->at, r->end);
  if (low < 0xdc00 || low > 0xdfff) return -1;
  r->at += 4;
  return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* Write the character whose escape starts here, behind the backslash; return where it ends, null if
 * there is no such escape. It is never longer than its escape. */
static char *unescape(reader *r, char *out) {
  static const char escapes[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
  if (take(r, 'u')) {
    const int32_t code = escaped_code(r);
    return code < 0 ? NULL : put_utf8(out, (uint32_t)code);
  }
  const char *found = r->at < r->end && *r->at != '\0' ? strchr(escapes, *r->at) : NULL;
  if (found == NULL) return NULL;
  ++r->at;
  *out++ = characters[found - escapes];
  return out;
}


/* Read a string, and leave its characters and a zero where it starts. */
static int read_string(reader *r) {
  const size_t index = add(r, NC_JSON_STRING);
  if (index == LIMIT) return 0;
  if (!take(r, '"')) return fail(r, "a name is missing");
  char *const start = r->at, *out = start;
  while (r->at < r->end && *r->at != '"') {
    if ((unsigned char)*r->at < ' ') return fail(r, "a control character in a string");
    if (take(r, '\\')) {
      out = unescape(r, out);
      if (out == NULL) return fail(r, "an invalid escape");
      continue;
    }
    const size_t length = utf8_length(r->at, r->end);
    if (length == 0) return fail(r, "not UTF-8");
    memmove(out, r->at, length);
    out += length;
    r->at += length;
  }
  r->values[index].text = start;
  r->values[index].length = (size_t)(out - start);
  if (!take(r, '"')) return fail(r, "an unfinished string");
  *out = '\0'; /* the quote, or in front of it */
  return 1;
}

static int read_number(reader *r) {
  const size_t index = add(r, NC_JSON_NUMBER);
  if (index == LIMIT) return 0;
  const char *start = r->at;
  take(r, '-');
  if (!take(r, '0') && !digits(r)) return fail(r, "an unknown word");
  if (take(r, '.') && !digits(r)) return fail(r, "an invalid number");
  if (take(r, 'e') || take(r, 'E')) {
    if (!take(r, '+')) take(r, '-');
    if (!digits(r)) return fail(r, "an invalid number");
  }
  if (!isfinite(strtod(start, NULL))) return fail(r, "a number beyond every number");
  r->values[index].length = (size_t)(r->at - start);
  return 1;
}

static int read_word(reader *r, const char *word, nc_json_kind kind) {
  const size_t length = strlen(word);
  if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) {
    return fail(r, "an unknown word");
  }
  if (add(r, kind) == LIMIT) return 0;
  r->at += length;
  return 1;
}

static int read_value(reader *r, int depth);

static int by_text(const void *one, const void *other) {
  const nc_json *a = *(const nc_json *const *)one, *b = *(const nc_json *const *)other;
  if (a->length != b->length) return a->length < b->length ? -1 : 1;
  return memcmp(a->text, b->text, a->length);
}

/* Whether all names of an object differ. */
static int check_names(reader *r, const nc_json *object) {
  const nc_json *name = object + 1, **names = malloc((object->size + 1) * sizeof *names);
  if (names == NULL) return fail(r, "too many names");
  for (uint32_t i = 0; i < object->size; ++i) {
    names[i] = name;
    name += 1 + name[1].extent;
  }
  qsort(names, object->size, sizeof *names, by_text);
  for (uint32_t i = 1; i < object->size; ++i) {
    if (by_text(&names[i - 1], &names[i]) == 0) fail(r, "a name twice in an object");
  }
  free(names);
  return r->problem == NULL;
}

/* The elements of an array, or the members of an object. */
static int read_all(reader *r, nc_json_kind kind, int depth) {
  const char close = kind == NC_JSON_ARRAY ? ']' : '}';
  const size_t index = add(r, kind);
  if (index == LIMIT) return 0;
  if (depth == DEPTH) return fail(r, "too deeply nested");
  uint32_t size = 0;
  ++r->at;
  skip_space(r);
  if (!take(r, close)) {
    do {
      skip_space(r);
      if (kind == NC_JSON_OBJECT) {
        if (!read_string(r)) return 0;
        skip_space(r);
        if (!take(r, ':')) return fail(r, "a colon is missing");
      }
      if (!read_value(r, depth + 1)) return 0;
      ++size;
      skip_space(r);
    } while (take(r, ','));
    if (!take(r, close)) return fail(r, "a comma or bracket is missing");
  }
  r->values[index].size = size;
  r->values[index].extent = (uint32_t)(r->count - index);
  return kind == NC_JSON_ARRAY || check_names(r, &r->values[index]);
}

static int read_value(reader *r, int depth) {
  skip_space(r);
  switch (r->at < r->end ? *r->at : '\0') {
    case '{':
      return read_all(r, NC_JSON_OBJECT, depth);
    case '[':
      return read_all(r, NC_JSON_ARRAY, depth);
    case '"':
      return read_string(r);
    case 'n':
      return read_word(r, "null", NC_JSON_NULL);
    case 't':
      return read_word(r, "true", NC_JSON_TRUE);
    case 'f':
      return read_word(r, "false", NC_JSON_FALSE);
    default:
      return read_number(r);
  }
}

static int read_document(reader *r) {
  /* strtod takes no point in a locale that writes decimals with commas. */
  const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(c);
  const int read = read_value(r, 0);
  uselocale(before);
  if (c != (locale_t)0) freelocale(c);
  skip_space(r);
  return read && (r->at == r->end || fail(r, "text behind the document"));
}

nc_json *nc_json_read(char *text, size_t length, const char **problem) {
  reader r = {.at = text, .end = text + length};
  if (read_document(&r)) return r.values;
  *problem = r.problem;
  free(r.values);
  return NULL;
}

const nc_json *nc_json_member(const nc_json *value, const char *key) {
  if (value == NULL || value->kind != NC_JSON_OBJECT) return NULL;
  const nc_json *name = value + 1;
  for (uint32_t i = 0; i < value->size; ++i) {
    if (nc_json_equals(name, key)) return name + 1;
    name += 1 + name[1].extent;
  }
  return NULL;
}

const nc_json *nc_json_first(const nc_json *value) {
  return value == NULL || value->kind != NC_JSON_ARRAY || value->size == 0 ? NULL : value + 1;
}

const nc_json *nc_json_next(const nc_json *value) { return value + value->extent; }

int nc_json_integer(const nc_json *value, int64_t *integer) {
  if (value == NULL || value->kind != NC_JSON_NUMBER || value->length > 19) return 0;
  if (value->length == 2 && memcmp(value->text, "-0", 2) == 0) return *integer = 0, 1;
  char text[20] = {0};
  memcpy(text, value->text, value->length);
  for (const char *c = text; *c != '\0'; ++c) {
    if (!is_digit(*c)) return 0;
  }
  errno = 0;
  *integer = strtoll(text, NULL, 10);
  return errno == 0;
}

int nc_json_signed(const nc_json *value, int64_t *integer) {
  if (value == NULL || value->kind != NC_JSON_NUMBER || value->text[0] != '-') {
    return nc_json_integer(value, integer);
  }
  nc_json digits = *value;
  ++digits.text;
  --digits.length;
  if (!nc_json_integer(&digits, integer)) return 0;
  *integer = -*integer;
  return 1;
}

int nc_json_equals(const nc_json *value, const char *text) {
  return value != NULL && value->kind == NC_JSON_STRING && value->length == strlen(text) &&
         memcmp(value->text, text, value->length) == 0;
}

const char *nc_json_text(const nc_json *value) {
  if (value == NULL || value->kind != NC_JSON_STRING) return NULL;
  return strlen(value->text) == value->length ? value->text : NULL;
}
