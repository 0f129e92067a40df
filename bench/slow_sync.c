/* LD_PRELOAD: each fsync, fdatasync and msync takes two milliseconds more, as on a cheap disk or a cloud volume. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

static void take_two_milliseconds(void) {
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
}

int fsync(int descriptor) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    take_two_milliseconds();
    return real(descriptor);
}

int fdatasync(int descriptor) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    take_two_milliseconds();
    return real(descriptor);
}

int msync(void *address, size_t length, int flags) {
    static int (*real)(void *, size_t, int);
    if (!real) real = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
    take_two_milliseconds();
    return real(address, length, flags);
}
