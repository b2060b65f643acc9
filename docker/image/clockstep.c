/* A wall clock that can be stepped, for a server in a container or beside others: they share the kernel's clocks.
 *
 * LD_PRELOAD this; the file that CLOCK_OFFSET_FILE names, or /dev/shm/clock, holds the offset in whole seconds.
 * It is opened with every look at the clock, so it is kept in memory: the file system of a container would cost a
 * server half of a processor.
 * Only CLOCK_REALTIME moves. It allocates nothing and so gets on with jemalloc, which libfaketime does not. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void) {
    char text[24] = {0};
    const char *named = getenv("CLOCK_OFFSET_FILE");
    int file = open(named ? named : "/dev/shm/clock", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? (time_t)strtol(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    if (into) *into = precise.tv_sec;
    return precise.tv_sec;
}
