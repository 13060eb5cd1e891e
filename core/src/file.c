#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"

static neocpu_status cannot_open(const char *path) {
  return nc_fail(NEOCPU_ARTIFACT, "cannot open artifact %s: %s", path, strerror(errno));
}

static neocpu_status no_file(const char *path, const struct stat *status) {
  return nc_fail(NEOCPU_ARTIFACT, "cannot open artifact %s: it is %s", path,
                 S_ISDIR(status->st_mode) ? "a folder" : "not a file but a pipe or device");
}

neocpu_status nc_file_open(const char *path, nc_file *file) {
  struct stat status;
  if (stat(path, &status) != 0) return cannot_open(path);
  if (!S_ISREG(status.st_mode)) return no_file(path, &status); /* opening a device may do things */
  /* This does not wait where a pipe that nobody writes to has taken the file's place meanwhile. */
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return cannot_open(path);
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    return no_file(path, &status);
  }
  *file = (nc_file){.fd = fd, .path = path, .size = (uint64_t)status.st_size};
  return NEOCPU_OK;
}

nc_file nc_file_of_memory(const void *data, size_t size) {
  return (nc_file){.fd = -1, .data = data, .path = "the model in memory", .size = size};
}

void nc_file_close(nc_file *file) {
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
}

int nc_file_contains(const nc_file *file, uint64_t offset, uint64_t size) {
  return offset <= file->size && size <= file->size - offset;
}

neocpu_status nc_file_read(const nc_file *file, uint64_t offset, void *data, size_t size) {
  char *bytes = data;
  if (file->data != NULL) {
    memcpy(bytes, file->data + file->offset + offset, size);
    return NEOCPU_OK;
  }
  while (size > 0) {
    const ssize_t count = pread(file->fd, bytes, size, (off_t)(file->offset + offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return nc_fail(NEOCPU_ARTIFACT, "cannot read artifact %s: %s", file->path, strerror(errno));
    }
    if (count == 0) {
      return nc_fail(NEOCPU_ARTIFACT,
                     "%s was cut short while it was read: replace a file by renaming another over "
                     "it (mv), not by writing into it", file->path);
    }
    bytes += count;
    offset += (uint64_t)count;
    size -= (size_t)count;
  }
  return NEOCPU_OK;
}

neocpu_status nc_file_read_new(const nc_file *file, uint64_t offset, uint64_t size, void **data) {
  *data = malloc(size + 1);
  if (*data == NULL) {
    return nc_fail(NEOCPU_FAILURE, "out of memory for %llu bytes of %s", (unsigned long long)size,
                   file->path);
  }
  ((char *)*data)[size] = '\0';
  const neocpu_status status = nc_file_read(file, offset, *data, size);
  if (status != NEOCPU_OK) {
    free(*data);
    *data = NULL;
  }
  return status;
}
