#include "cpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4352 };
static const double UNLIMITED = 1e9;

/* The first line of a file; 0 if there is none. */
static int read_line(const char *folder, const char *name, char *line, int size) {
  char path[PATH_SIZE + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  const int found = fgets(line, size, file) != NULL;
  fclose(file);
  return found;
}

/* The quota that one control group itself has, in CPUs. */
static double folder_quota(const char *folder) {
  char line[128], period_line[64];
  double quota, period;
  if (read_line(folder, "cpu.max", line, sizeof line)) {
    return sscanf(line, "%lf %lf", &quota, &period) == 2 ? quota / period : UNLIMITED;
  }
  if (!read_line(folder, "cpu.cfs_quota_us", line, sizeof line) ||
      !read_line(folder, "cpu.cfs_period_us", period_line, sizeof period_line)) {
    return UNLIMITED;
  }
  quota = strtod(line, NULL);
  period = strtod(period_line, NULL);
  return quota > 0 && period > 0 ? quota / period : UNLIMITED;
}

/* The smallest quota of a control group and those it is in. Inside a container the path may be the
 * host's and not exist below our mount, while the mount itself is our group. */
static double path_quota(const char *mount, const char *path) {
  char folder[PATH_SIZE];
  double smallest = UNLIMITED;
  const size_t base = strlen(mount);
  snprintf(folder, sizeof folder, "%s%s", mount, path);
  for (;;) {
    const double quota = folder_quota(folder);
    if (quota < smallest) smallest = quota;
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash < folder + base) return smallest;
    *slash = '\0';
  }
}

/* Whether a list such as "cpu,cpuacct" names the cpu controller. */
static int has_cpu(const char *controllers) {
  const char *found = strstr(controllers, "cpu");
  while (found != NULL) {
    const int starts = found == controllers || found[-1] == ',';
    if (starts && (found[3] == ',' || found[3] == '\0')) return 1;
    found = strstr(found + 3, "cpu");
  }
  return 0;
}

static double quota(void) {
  static const char root[] = "/sys/fs/cgroup";
  char line[4096], mount[256];
  double smallest = UNLIMITED;
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (file == NULL) return smallest;
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL) continue;
    *path++ = '\0';
    ++controllers;
    if (*controllers != '\0' && !has_cpu(controllers)) continue;
    const char *names[] = {*controllers == '\0' ? "" : "/cpu", controllers};
    for (int i = 0; i < (*controllers == '\0' ? 1 : 2); ++i) {
      snprintf(mount, sizeof mount, "%s%s%.200s", root, i == 1 ? "/" : "", names[i]);
      const double found = path_quota(mount, path);
      if (found < smallest) smallest = found;
    }
  }
  fclose(file);
  return smallest;
}

int nc_allowed_cpus(void) {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed)
                                                             : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Add the CPUs of a list such as "0-3,8" to a set. */
static void add_list(const char *list, cpu_set_t *set) {
  while (*list >= '0' && *list <= '9') {
    char *end;
    const long first = strtol(list, &end, 10);
    const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
    for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET((int)cpu, set);
    list = *end == ',' ? end + 1 : end;
  }
}

/* Add the CPUs that do more than half of what the fastest ones do: of ARM's three kinds, two. */
static void add_capable(const char *devices, cpu_set_t *set) {
  long capacity[CPU_SETSIZE] = {0}, most = 0;
  char folder[PATH_SIZE], line[32];
  for (int cpu = 0; cpu < CPU_SETSIZE && cpu < sysconf(_SC_NPROCESSORS_CONF); ++cpu) {
    snprintf(folder, sizeof folder, "%s/system/cpu/cpu%d", devices, cpu);
    if (read_line(folder, "cpu_capacity", line, sizeof line)) capacity[cpu] = atol(line);
    if (capacity[cpu] > most) most = capacity[cpu];
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (capacity[cpu] > most / 2) CPU_SET(cpu, set);
  }
}

int nc_performance_cpus(const char *devices, cpu_set_t *found) {
  char folder[PATH_SIZE], line[4096];
  cpu_set_t allowed, fast;
  CPU_ZERO(found);
  CPU_ZERO(&fast);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  snprintf(folder, sizeof folder, "%s/cpu_core", devices); /* Intel's, beside cpu_atom */
  if (read_line(folder, "cpus", line, sizeof line)) {
    add_list(line, &fast);
  } else {
    add_capable(devices, &fast);
  }
  CPU_AND(found, &allowed, &fast);
  return CPU_COUNT(found);
}

static int within_quota(int cpus) {
  const double limit = quota();
  const int usable = limit < cpus ? (int)limit : cpus;
  return usable < 1 ? 1 : usable;
}

int nc_usable_cpus(void) { return within_quota(nc_allowed_cpus()); }

int nc_usable_performance_cpus(void) {
  cpu_set_t fast;
  const int cpus = nc_performance_cpus(NC_DEVICES, &fast);
  return within_quota(cpus > 0 ? cpus : nc_allowed_cpus());
}
