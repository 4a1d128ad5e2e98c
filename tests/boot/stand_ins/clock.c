/* Preloaded: a wall clock of its own, off by the seconds in /etc/agents-clock, for those who ask by clock_gettime. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
  char text[32] = "";
  int failed = syscall(SYS_clock_gettime, clock, at), file;
  if (clock != CLOCK_REALTIME || (file = open("/etc/agents-clock", O_RDONLY | O_CLOEXEC)) < 0) return failed;
  if (read(file, text, sizeof text - 1) > 0) at->tv_sec += atol(text);
  close(file);
  return failed;
}
