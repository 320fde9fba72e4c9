/* fsync that does not wait, preloaded by `make test` into all processes of the tests.

   Every file of a cache is synced before it gets its name, and so is its directory, which takes a disk 4 ms each time.
   Whether bytes outlast a loss of power shows in no test. What happens when fsync fails does: failing_disk.c is
   preloaded in place of this there. */

#include <fcntl.h>

int fsync(int fd) { return fcntl(fd, F_GETFD) < 0 ? -1 : 0; }  /* EBADF stays what it is */

int fdatasync(int fd) { return fsync(fd); }
