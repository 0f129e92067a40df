/* LD_PRELOAD: a disk that is slow now and then. One in SLOW_SYNC_EVERY syncs (default 20) takes SLOW_SYNC_MS (200)
   more. Of a .log file nothing is in memory before it was read; each 256 KiB take SLOW_READ_MS (default 0), as from a
   disk that spins. Reads that must not wait (RWF_NOWAIT) say so. While the file SLOW_WHILE is there, each write, each
   opening, renaming and removing of a file below SLOW_FOLDER takes SLOW_WRITE_MS (500), as on a disk that is so far
   behind that whoever writes to it has to wait. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
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

static ssize_t path_of(int descriptor, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    return readlink(link, path, PATH_MAX);
}

static int is_log(int descriptor) {
    char path[PATH_MAX];
    ssize_t size = path_of(descriptor, path);
    return size > 4 && !memcmp(path + size - 4, ".log", 4);
}

static void wait_for_writing(const char *path, size_t size) {
    const char *folder = getenv("SLOW_FOLDER"), *switched = getenv("SLOW_WHILE");
    if (!folder || size <= strlen(folder) || strncmp(path, folder, strlen(folder))) return;
    if (!switched || !access(switched, F_OK)) take(number("SLOW_WRITE_MS", 500));
}

static void wait_for_writing_to(int descriptor) {
    char path[PATH_MAX];
    if (!getenv("SLOW_FOLDER")) return;
    ssize_t size = path_of(descriptor, path);
    if (size > 0 && size < PATH_MAX) wait_for_writing(path, size);
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

ssize_t pwrite64(int descriptor, const void *from, size_t size, off64_t position) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    wait_for_writing_to(descriptor);
    return real(descriptor, from, size, position);
}

ssize_t pwrite(int descriptor, const void *from, size_t size, off_t position) {
    return pwrite64(descriptor, from, size, position);
}

int open64(const char *path, int flags, ...) {
    REAL(int, "open64", const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    wait_for_writing(path, strlen(path));
    return real(path, flags, mode);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    wait_for_writing(from, strlen(from));
    return real(from, to);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    wait_for_writing(path, strlen(path));
    return real(path);
}
