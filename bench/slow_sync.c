/* LD_PRELOAD: each fsync and fdatasync takes two milliseconds more, as on a cheap disk or a cloud
   volume. Not msync, by which Kafka flushes its indexes: mostly there is nothing in them to be written. */
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
