/* forks MODEL: fork while another thread loads a model; every child loads one too. Prints how many
 * of the children did. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "neocpu.h"

enum { CHILDREN = 6, PAUSE = 500 /* microseconds */, PATIENCE = 30 /* seconds */ };

static void *load(void *path) {
  neocpu_model *model;
  const neocpu_options options = {.threads = 1};
  const neocpu_status status = neocpu_load(path, &options, &model);
  neocpu_free(model);
  return status == NEOCPU_OK ? path : NULL;
}

int main(int count, char **words) {
  pid_t children[CHILDREN];
  pthread_t loader;
  int loaded = 0, outcome;
  if (count < 2 || pthread_create(&loader, NULL, load, words[1]) != 0) return 1;
  for (int i = 0; i < CHILDREN; ++i) {
    usleep(PAUSE);
    children[i] = fork();
    if (children[i] == 0) {
      alarm(PATIENCE);
      _exit(load(words[1]) == NULL);
    }
  }
  for (int i = 0; i < CHILDREN; ++i) {
    loaded += waitpid(children[i], &outcome, 0) > 0 && outcome == 0;
  }
  pthread_join(loader, NULL);
  printf("%d\n", loaded);
  return 0;
}
