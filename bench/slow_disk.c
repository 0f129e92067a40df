/* LD_PRELOAD: a disk that is slow now and then. One in SLOW_SYNC_EVERY syncs (default 20) takes SLOW_SYNC_MS (200)
   more. Of a .log file nothing is in memory before it was read; each 256 KiB take SLOW_READ_MS (default 0), as from a
   disk that spins. Reads that must not wait (RWF_NOWAIT) say so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DESCRIPTORS 65536
#define READ_AHEAD (1 << 18)
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static void take(long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    if (milliseconds > 0) nanosleep(&pause, NULL);
}

static void slow_sync(void) {
    static atomic_long syncs;
    if (atomic_fetch_add(&syncs, 1) % number("SLOW_SYNC_EVERY", 20) == 0) take(number("SLOW_SYNC_MS", 200));
}

static int is_log(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path);
    return size > 4 && !memcmp(path + size - 4, ".log", 4);
}

/* Whether bytes of a log are in memory: what is behind them in the file was never read through this descriptor. */
static atomic_long warm_to[DESCRIPTORS];

static int is_cold(int descriptor, off64_t position, size_t size) {
    if (number("SLOW_READ_MS", 0) <= 0 || descriptor < 0 || descriptor >= DESCRIPTORS || !size) return 0;
    return position + (off64_t)size > warm_to[descriptor] && is_log(descriptor);
}

static void read_ahead(int descriptor, off64_t position, size_t size) {
    if (!is_cold(descriptor, position, size)) return;
    take(number("SLOW_READ_MS", 0));
    warm_to[descriptor] = (position + size + READ_AHEAD) / READ_AHEAD * READ_AHEAD;
}

static size_t total(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int each = 0; each < count; each++) size += parts[each].iov_len;
    return size;
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int fsync(int descriptor) {
    REAL(int, "fsync", int);
    slow_sync();
    return real(descriptor);
}

int fdatasync(int descriptor) {
    REAL(int, "fdatasync", int);
    slow_sync();
    return real(descriptor);
}

ssize_t pread64(int descriptor, void *to, size_t size, off64_t position) {
    REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
    read_ahead(descriptor, position, size);
    return real(descriptor, to, size, position);
}

ssize_t pread(int descriptor, void *to, size_t size, off_t position) {
    return pread64(descriptor, to, size, position);
}

ssize_t preadv64(int descriptor, const struct iovec *parts, int count, off64_t position) {
    REAL(ssize_t, "preadv64", int, const struct iovec *, int, off64_t);
    read_ahead(descriptor, position, total(parts, count));
    return real(descriptor, parts, count, position);
}

ssize_t preadv(int descriptor, const struct iovec *parts, int count, off_t position) {
    return preadv64(descriptor, parts, count, position);
}

ssize_t preadv64v2(int descriptor, const struct iovec *parts, int count, off64_t position, int flags) {
    REAL(ssize_t, "preadv64v2", int, const struct iovec *, int, off64_t, int);
    if (flags & RWF_NOWAIT && is_cold(descriptor, position, total(parts, count))) {
        errno = EAGAIN;
        return -1;
    }
    read_ahead(descriptor, position, total(parts, count));
    return real(descriptor, parts, count, position, flags);
}

ssize_t sendfile64(int to, int from, off64_t *position, size_t size) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    if (position) read_ahead(from, *position, size);
    return real(to, from, position, size);
}

ssize_t sendfile(int to, int from, off_t *position, size_t size) {
    return sendfile64(to, from, position, size);
}
