#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 1 << 16, ALIGN = 128 };

static const struct {
  const char *dtype, *code;
} codes[] = {{"float32", "<f4"}, {"float64", "<f8"}, {"float16", "<f2"}, {"bfloat16", "<u2"},
             {"int8", "|i1"},    {"int16", "<i2"},   {"int32", "<i4"},   {"int64", "<i8"},
             {"uint8", "|u1"},   {"uint16", "<u2"},  {"uint32", "<u4"},  {"uint64", "<u8"},
             {"bool", "|b1"}}; /* numpy has bfloat16 as the bits alone */

static const char *code_of(const char *dtype) {
  for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i) {
    if (strcmp(codes[i].dtype, dtype) == 0) return codes[i].code;
  }
  return "?";
}

size_t npy_element(const char *dtype) { return (size_t)(code_of(dtype)[2] - '0'); }

/* The place for a message. */
typedef struct report {
  const char *path;
  char *problem;
  size_t size;
} report;

__attribute__((format(printf, 2, 3))) static int fail(const report *to, const char *format, ...) {
  int used = snprintf(to->problem, to->size, "%s: ", to->path);
  va_list arguments;
  va_start(arguments, format);
  if ((size_t)used < to->size) {
    vsnprintf(to->problem + used, to->size - (size_t)used, format, arguments);
  }
  va_end(arguments);
  return 0;
}

static char *nothing(const report *to, const char *problem) {
  fail(to, "%s", problem);
  return NULL;
}

/* A shape as Python writes a tuple. */
static void shape_text(const neocpu_spec *spec, int64_t first, char *text, size_t size) {
  int used = snprintf(text, size, "(");
  for (size_t i = 0; i < spec->rank && (size_t)used < size; ++i) {
    const long long extent = i == 0 ? first : spec->shape[i];
    used += snprintf(text + used, size - (size_t)used, "%s%lld", i == 0 ? "" : ", ", extent);
  }
  if ((size_t)used < size) snprintf(text + used, size - (size_t)used, spec->rank == 1 ? ",)" : ")");
}

/* The text behind 'key': in the header, which is a Python dictionary that numpy wrote. */
static const char *field(const char *header, const char *key) {
  char quoted[32];
  snprintf(quoted, sizeof quoted, "'%s':", key);
  const char *found = strstr(header, quoted);
  if (found == NULL) return "";
  found += strlen(quoted);
  while (*found == ' ') ++found;
  return found;
}

/* Extents of a tuple; -1 if it is none. */
static int read_shape(const char *text, int64_t *shape) {
  int rank = 0;
  if (*text++ != '(') return -1;
  for (;;) {
    while (*text == ' ' || *text == ',') ++text;
    if (*text == ')') return rank;
    char *end;
    const long long extent = strtoll(text, &end, 10);
    if (end == text || rank == NPY_MAX_RANK) return -1;
    shape[rank++] = extent;
    text = end;
  }
}

static int check_header(const report *to, const char *header, const neocpu_spec *spec) {
  const char *code = field(header, "descr"), *wanted = code_of(spec->dtype);
  char expected[256], got[256];
  int64_t shape[NPY_MAX_RANK];
  if (code[0] != '\'' || strncmp(code + 1, wanted, 3) != 0 || code[4] != '\'') {
    const char *end = *code == '\'' ? strchr(code + 1, '\'') : NULL;
    const int length = end != NULL && end - code < 16 ? (int)(end + 1 - code) : 16;
    const int bits = strcmp(spec->dtype, "bfloat16") == 0;
    const char *quote = bits ? "" : "'", *kind = bits ? "ml_dtypes.bfloat16).view('uint16'" : wanted;
    return fail(to,
                "input '%s' takes %s, the file holds dtype %.*s: convert it with x.astype(%s%s%s)",
                spec->name, spec->dtype, length, code, quote, kind, quote);
  }
  const int rank = read_shape(field(header, "shape"), shape);
  if (rank < 0) return fail(to, "not a .npy file: its shape is malformed");
  const neocpu_spec given = {.shape = shape, .rank = (size_t)rank};
  if (given.rank != spec->rank ||
      (rank > 0 && memcmp(shape, spec->shape, spec->rank * sizeof *shape) != 0)) {
    shape_text(spec, spec->rank > 0 ? spec->shape[0] : 0, expected, sizeof expected);
    shape_text(&given, rank > 0 ? shape[0] : 0, got, sizeof got);
    return fail(to, "input '%s' takes shape %s, the file holds %s", spec->name, expected, got);
  }
  if (strncmp(field(header, "fortran_order"), "False", 5) != 0) {
    return fail(to, "it is in Fortran order: save np.ascontiguousarray(x)");
  }
  return 1;
}

/* The header's text, to be freed by free(); null after a failure. */
static char *read_text(const report *to, FILE *file) {
  unsigned char start[12];
  if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0) {
    return nothing(to, "not a .npy file");
  }
  if (start[6] < 1 || start[6] > 3) return nothing(to, "not a .npy file of a known version");
  size_t length = start[8] | (size_t)start[9] << 8;
  if (start[6] > 1) { /* two bytes more, from version 2 on */
    if (fread(start + 10, 1, 2, file) != 2) return nothing(to, "the file is truncated");
    length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  }
  if (length > MAX_HEADER) return nothing(to, "not a .npy file: its header is too long");
  char *header = calloc(1, length + 1);
  if (header == NULL) return nothing(to, "out of memory");
  if (fread(header, 1, length, file) == length) return header;
  free(header);
  return nothing(to, "the file is truncated");
}

static int read_header(const report *to, FILE *file, const neocpu_spec *spec) {
  char *header = read_text(to, file);
  const int valid = header != NULL && check_header(to, header, spec);
  free(header);
  return valid;
}

static int read_data(const report *to, FILE *file, const neocpu_spec *spec, void **data) {
  *data = aligned_alloc(ALIGN, (spec->bytes + ALIGN) / ALIGN * ALIGN);
  if (*data == NULL) return fail(to, "out of memory for %zu bytes", spec->bytes);
  if (fread(*data, 1, spec->bytes, file) == spec->bytes) return 1;
  free(*data);
  *data = NULL;
  return fail(to, "the file is truncated");
}

/* Open a file for writing; null, and errno, if it is a pipe that nobody reads: no one is waited
 * for. */
static FILE *create_file(const char *path) {
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const int fd = open(path, flags, 0666);
  if (fd < 0) return NULL;
  const int kept = fcntl(fd, F_GETFL);
  if (kept >= 0 && fcntl(fd, F_SETFL, kept & ~O_NONBLOCK) == 0) return fdopen(fd, "wb");
  close(fd);
  return NULL;
}

/* Open an ordinary file; null, and errno, if it is another: a pipe would be waited for. */
static FILE *open_file(const char *path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (fd < 0) return NULL;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fdopen(fd, "rb");
  close(fd);
  errno = EINVAL;
  return NULL;
}

/* The same, with a message. */
static FILE *open_array(const report *to) {
  FILE *file = open_file(to->path);
  if (file == NULL) fail(to, "%s", errno == EINVAL ? "it is not a file" : strerror(errno));
  return file;
}

int npy_shape(const char *path, int64_t *shape, size_t *rank, char *problem, size_t size) {
  const report to = {path, problem, size};
  FILE *file = open_array(&to);
  if (file == NULL) return 0;
  char *header = read_text(&to, file);
  fclose(file);
  if (header == NULL) return 0;
  const int found = read_shape(field(header, "shape"), shape);
  free(header);
  *rank = (size_t)found;
  return found >= 0 || fail(&to, "not a .npy file: its shape is malformed");
}

int npy_read(const char *path, const neocpu_spec *spec, void **data, char *problem, size_t size) {
  const report to = {path, problem, size};
  *data = NULL;
  FILE *file = open_array(&to);
  if (file == NULL) return 0;
  const int done = read_header(&to, file, spec) && read_data(&to, file, spec, data);
  fclose(file);
  return done;
}

int npy_write(const char *path, const neocpu_spec *spec, size_t rows, const void *data,
              char *problem, size_t size) {
  const report to = {path, problem, size};
  const size_t all = spec->bounded && spec->bytes > 0 ? (size_t)spec->shape[0] : 1;
  const size_t bytes = spec->bytes / all * (spec->bounded ? rows : 1);
  char shape[256], header[512];
  shape_text(spec, (int64_t)rows, shape, sizeof shape);
  int length = snprintf(header, sizeof header,
                        "\x93NUMPY\x01%c%c%c{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                        0, 0, 0, code_of(spec->dtype), shape);
  while (length % 64 != 63) header[length++] = ' ';
  header[length++] = '\n';
  header[8] = (char)((length - 10) & 0xff);
  header[9] = (char)((length - 10) >> 8);
  FILE *file = create_file(path);
  if (file == NULL) {
    return fail(&to, "%s", errno == ENXIO ? "nobody reads this pipe" : strerror(errno));
  }
  const int written = fwrite(header, 1, (size_t)length, file) == (size_t)length &&
                      fwrite(data, 1, bytes, file) == bytes;
  const int closed = fclose(file) == 0;
  return (written && closed) || fail(&to, "%s", strerror(errno));
}
