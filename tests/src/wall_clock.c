/*
 * A wall clock that a test sets, for a server that is started with this library in LD_PRELOAD.
 *
 * The file named by TEST_CLOCK holds one signed 64-bit number: by how many milliseconds the server's wall clock
 * is ahead. It is mapped, so writing to the file sets the clock at once. The monotonic clock is left alone.
 *
 * libfaketime does not work here: it needs memory before jemalloc, which asks for the time first, has any to give. So
 * nothing in this file allocates, and the true time comes from the kernel itself.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t ahead_ms(void) {
    static const volatile int64_t *mapped;
    if (!mapped) {
        const char *path = getenv("TEST_CLOCK");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (file < 0) return 0;
        void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (page == MAP_FAILED) return 0;
        mapped = page;
    }
    return *mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t ahead = ahead_ms();
    now->tv_sec += ahead / 1000;
    now->tv_nsec += ahead % 1000 * 1000000;
    if (now->tv_nsec >= 1000000000) {
        now->tv_sec += 1;
        now->tv_nsec -= 1000000000;
    } else if (now->tv_nsec < 0) {
        now->tv_sec -= 1;
        now->tv_nsec += 1000000000;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
