/* A disk that fails at its n-th call: preloaded, it makes one call below FAILING_DIRECTORY fail in every process.

   FAILING_STATE names a file of four int64: the kind of failure, n, the calls so far, and whether it has happened.
   short: the first write from n on takes half of its bytes. full: so it does, and every later write finds no room.
   eio: the n-th call, whatever it is (write, truncate, fsync, close, rename, link, copy), ends in EIO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, SHORT, FULL, EIO_ONCE };
struct state { int64_t kind, at, calls, happened; };
static volatile struct state *state;
static const char *below;

__attribute__((constructor)) static void begin(void) {
  const char *file = getenv("FAILING_STATE");
  below = getenv("FAILING_DIRECTORY");
  if (!file || !below) return;
  int (*plain_close)(int) = dlsym(RTLD_NEXT, "close");
  int descriptor = open(file, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return;
  void *made = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (made != MAP_FAILED) state = made;
  plain_close(descriptor);
}

static int named(const char *path) { return path && state && state->kind && !strncmp(path, below, strlen(below)); }

static int opened(int descriptor) {
  char link[64], path[4096];
  if (!state || !state->kind) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return 0;
  path[size] = 0;
  return named(path);
}

static int writable(int descriptor) { return (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY; }

static int fails(void) { return __sync_add_and_fetch(&state->calls, 1) == state->at && state->kind == EIO_ONCE; }

/* How many of `size` bytes the disk takes; -1 with errno set. */
static ssize_t taken(size_t size) {
  if (fails()) { state->happened = 1; errno = EIO; return -1; }
  if (state->kind == EIO_ONCE || state->calls < state->at) return size;
  if (state->happened) {
    if (state->kind == SHORT) return size;
    errno = ENOSPC;
    return -1;
  }
  if (size < 2) return size;
  state->happened = 1;
  return size / 2;
}

#define NEXT(name) static __typeof__(name) *next; if (!next) next = dlsym(RTLD_NEXT, #name)
#define WRITES(name, parameters, arguments) \
  ssize_t name parameters { NEXT(name); \
    if (opened(fd)) { ssize_t most = taken(size); if (most < 0) return -1; size = most; } \
    return next arguments; }
WRITES(write, (int fd, const void *data, size_t size), (fd, data, size))
WRITES(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
WRITES(copy_file_range, (int in, off64_t *from, int fd, off64_t *to, size_t size, unsigned flags), (in, from, fd, to, size, flags))
ssize_t sendfile(int fd, int in, off_t *from, size_t size);
WRITES(sendfile, (int fd, int in, off_t *from, size_t size), (fd, in, from, size))
ssize_t sendfile64(int fd, int in, off64_t *from, size_t size);
WRITES(sendfile64, (int fd, int in, off64_t *from, size_t size), (fd, in, from, size))

#define FAILS(condition) if ((condition) && fails()) { state->happened = 1; errno = EIO; return -1; }
int fsync(int fd) { NEXT(fsync); FAILS(opened(fd)) return next(fd); }
int fdatasync(int fd) { NEXT(fdatasync); FAILS(opened(fd)) return next(fd); }
int ftruncate(int fd, off_t size) { NEXT(ftruncate); FAILS(opened(fd)) return next(fd, size); }
int ftruncate64(int fd, off64_t size) { NEXT(ftruncate64); FAILS(opened(fd)) return next(fd, size); }
int rename(const char *from, const char *to) { NEXT(rename); FAILS(named(to)) return next(from, to); }
int renameat(int a, const char *from, int b, const char *to) { NEXT(renameat); FAILS(named(to)) return next(a, from, b, to); }
int link(const char *from, const char *to) { NEXT(link); FAILS(named(to)) return next(from, to); }
int linkat(int a, const char *from, int b, const char *to, int flags) { NEXT(linkat); FAILS(named(to)) return next(a, from, b, to, flags); }
int close(int fd) {
  NEXT(close);
  int failing = opened(fd) && writable(fd) && fails();
  int result = next(fd);
  if (failing) { state->happened = 1; errno = EIO; return -1; }
  return result;
}
