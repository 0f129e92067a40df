/* A disk that can forget, below a process that does not know: preload it, and every change below $DISK_ROOT is written
 * down in $DISK_JOURNAL/PID as well, syncs included. forgetful_disk.py reads that and makes of it what the disk holds
 * when the power is back. A sync only takes $DISK_SYNC_US microseconds: the journal says what it would have done.
 *
 * Calls can be made to fail: those that change something below the root in a file whose path has $DISK_FAIL_NAME in
 * it, from the $DISK_FAIL_AT-th on, $DISK_FAIL_COUNT of them, with the error number $DISK_FAIL_WITH.
 *
 * The kernel is called directly, so that nothing has to be looked up. What no broker does to its files (links, writable
 * maps, copies within the kernel) is not followed: it is written down as STRANGE, and whoever reads the journal refuses.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAKE_FILE = 1, MAKE_FOLDER, WRITE, TRUNCATE, RENAME, REMOVE, SYNC_BEGINS, SYNC_ENDS, SYNC_ALL, STRANGE };

struct event {
    uint32_t kind, first_bytes, second_bytes, data_bytes;
    uint64_t inode, position, time_ns;
};

#define MOST_FILES (1 << 16)

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], failing_name[PATH_MAX];
static size_t root_bytes;
static int journal = -1;
static uint64_t last_sync;
static long sync_us, fail_at, fail_count, fail_with, calls;
static char *names[MOST_FILES]; /* of the open files below the root */

/* -- the journal ---------------------------------------------------------------------------------------------------- */

static long number_of(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text != NULL ? atol(text) : otherwise;
}

static int is_on(void) { /* whether there is a root; a process that was forked may get one later */
    if (root_bytes != 0) return 1;
    const char *wanted = getenv("DISK_ROOT"), *folder = getenv("DISK_JOURNAL"), *failing = getenv("DISK_FAIL_NAME");
    if (wanted == NULL || folder == NULL) return 0;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    snprintf(failing_name, sizeof failing_name, "%s", failing != NULL ? failing : "");
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (journal < 0) abort();
    sync_us = number_of("DISK_SYNC_US", 0);
    fail_at = number_of("DISK_FAIL_AT", 0);
    fail_count = number_of("DISK_FAIL_COUNT", 1);
    fail_with = number_of("DISK_FAIL_WITH", EIO);
    snprintf(root, sizeof root, "%s", wanted);
    root_bytes = strlen(root);
    return 1;
}

static void note(uint32_t kind, uint64_t inode, uint64_t position, const char *first, const char *second,
                 const struct iovec *data, int pieces, size_t data_bytes) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    struct event event = {kind, first ? strlen(first) : 0, second ? strlen(second) : 0, data_bytes,
                          inode, position, time_ns};
    struct iovec whole[3 + pieces];
    int count = 3;
    whole[0] = (struct iovec){&event, sizeof event};
    whole[1] = (struct iovec){(void *)first, event.first_bytes};
    whole[2] = (struct iovec){(void *)second, event.second_bytes};
    for (size_t left = data_bytes; left != 0; data++) {
        size_t part = data->iov_len < left ? data->iov_len : left;
        whole[count++] = (struct iovec){data->iov_base, part};
        left -= part;
    }
    size_t expected = sizeof event + event.first_bytes + event.second_bytes + data_bytes;
    if ((size_t)syscall(SYS_writev, journal, whole, count) != expected) abort();
}

static void note_names(uint32_t kind, uint64_t inode, const char *first, const char *second) {
    note(kind, inode, 0, first, second, NULL, 0, 0);
}

/* -- which files ---------------------------------------------------------------------------------------------------- */

static const char *full_path(int folder, const char *path, char *space) {
    if (path[0] == '/') return path;
    char base[PATH_MAX], link[64];
    snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, base, sizeof base - 1);
    if (size < 0) return path;
    base[size] = 0;
    snprintf(space, PATH_MAX, "%.*s/%s", (int)size, base, path);
    return space;
}

static int is_below(const char *path) {
    return strncmp(path, root, root_bytes) == 0 && (path[root_bytes] == '/' || path[root_bytes] == 0);
}

static int is_followed(int descriptor) {
    return descriptor >= 0 && descriptor < MOST_FILES && names[descriptor] != NULL;
}

static uint64_t inode_of(int descriptor) {
    struct stat status;
    return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

static int fails(const char *path) { /* call it with the lock held */
    if (fail_at == 0 || strstr(path, failing_name) == NULL) return 0;
    calls++;
    if (calls < fail_at || calls >= fail_at + fail_count) return 0;
    errno = (int)fail_with;
    return 1;
}

static void forget(int descriptor) {
    if (!is_followed(descriptor)) return;
    pthread_mutex_lock(&turn);
    free(names[descriptor]);
    names[descriptor] = NULL;
    pthread_mutex_unlock(&turn);
}

/* -- open and close ------------------------------------------------------------------------------------------------- */

static int open_any(int folder, const char *path, int flags, mode_t mode) {
    char space[PATH_MAX];
    const char *full;
    if (!is_on() || !is_below(full = full_path(folder, path, space)))
        return (int)syscall(SYS_openat, folder, path, flags, mode);
    pthread_mutex_lock(&turn);
    int descriptor = -1;
    int is_new = (flags & O_CREAT) && faccessat(folder, path, F_OK, 0) != 0;
    if (!((flags & (O_CREAT | O_TRUNC)) && fails(full)))
        descriptor = (int)syscall(SYS_openat, folder, path, flags, mode);
    int error = errno;
    if (descriptor >= MOST_FILES) abort();
    if (descriptor >= 0) {
        uint64_t inode = inode_of(descriptor);
        if (is_new) note_names(MAKE_FILE, inode, full, NULL);
        else if (flags & O_TRUNC) note_names(TRUNCATE, inode, NULL, NULL);
        free(names[descriptor]);
        names[descriptor] = strdup(full);
    }
    pthread_mutex_unlock(&turn);
    errno = error;
    return descriptor;
}

#define MODE(flags) ({ mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
    mode; })

int open(const char *path, int flags, ...) { return open_any(AT_FDCWD, path, flags, MODE(flags)); }
int open64(const char *path, int flags, ...) { return open_any(AT_FDCWD, path, flags, MODE(flags)); }
int openat(int folder, const char *path, int flags, ...) { return open_any(folder, path, flags, MODE(flags)); }
int openat64(int folder, const char *path, int flags, ...) { return open_any(folder, path, flags, MODE(flags)); }

int close(int descriptor) {
    forget(descriptor);
    return (int)syscall(SYS_close, descriptor);
}

/* -- contents ------------------------------------------------------------------------------------------------------- */

enum { AT_ITS_PLACE, AT_POSITION };

static ssize_t write_any(int descriptor, const struct iovec *data, int pieces, off_t position, int how) {
    if (!is_followed(descriptor))
        return how == AT_POSITION ? syscall(SYS_pwritev, descriptor, data, pieces, position, 0)
                                  : syscall(SYS_writev, descriptor, data, pieces);
    pthread_mutex_lock(&turn);
    ssize_t done = -1;
    if (!fails(names[descriptor]))
        done = how == AT_POSITION ? syscall(SYS_pwritev, descriptor, data, pieces, position, 0)
                                  : syscall(SYS_writev, descriptor, data, pieces);
    int error = errno;
    if (done > 0) {
        if (how == AT_ITS_PLACE) position = lseek(descriptor, 0, SEEK_CUR) - done;
        note(WRITE, inode_of(descriptor), position, NULL, NULL, data, pieces, done);
    }
    pthread_mutex_unlock(&turn);
    errno = error;
    return done;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    if (!is_followed(descriptor)) return syscall(SYS_write, descriptor, data, size);
    return write_any(descriptor, &(struct iovec){(void *)data, size}, 1, 0, AT_ITS_PLACE);
}
ssize_t writev(int descriptor, const struct iovec *data, int pieces) {
    return write_any(descriptor, data, pieces, 0, AT_ITS_PLACE);
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t position) {
    return write_any(descriptor, &(struct iovec){(void *)data, size}, 1, position, AT_POSITION);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t position) {
    return pwrite(descriptor, data, size, position);
}
ssize_t pwritev(int descriptor, const struct iovec *data, int pieces, off_t position) {
    return write_any(descriptor, data, pieces, position, AT_POSITION);
}
ssize_t pwritev64(int descriptor, const struct iovec *data, int pieces, off64_t position) {
    return pwritev(descriptor, data, pieces, position);
}
ssize_t pwritev2(int descriptor, const struct iovec *data, int pieces, off_t position, int flags) {
    if (is_followed(descriptor)) note_names(STRANGE, inode_of(descriptor), "pwritev2", NULL);
    return syscall(SYS_pwritev2, descriptor, data, pieces, position, 0, flags);
}
ssize_t pwritev64v2(int descriptor, const struct iovec *data, int pieces, off64_t position, int flags) {
    return pwritev2(descriptor, data, pieces, position, flags);
}

int ftruncate(int descriptor, off_t size) {
    if (!is_followed(descriptor)) return (int)syscall(SYS_ftruncate, descriptor, size);
    pthread_mutex_lock(&turn);
    int failed = fails(names[descriptor]) ? -1 : (int)syscall(SYS_ftruncate, descriptor, size);
    int error = errno;
    if (!failed) note(TRUNCATE, inode_of(descriptor), size, NULL, NULL, NULL, 0, 0);
    pthread_mutex_unlock(&turn);
    errno = error;
    return failed;
}
int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }

/* -- syncs ---------------------------------------------------------------------------------------------------------- */

static int sync_any(int descriptor, uint32_t kind, long call) {
    if (!is_followed(descriptor)) return (int)syscall(call, descriptor);
    pthread_mutex_lock(&turn);
    uint64_t number = ++last_sync;
    int failed = fails(names[descriptor]) ? -1 : 0;
    int error = errno;
    if (!failed) note(kind, inode_of(descriptor), number, NULL, NULL, NULL, 0, 0);
    pthread_mutex_unlock(&turn);
    if (!failed) {
        if (sync_us) usleep((useconds_t)sync_us);
        pthread_mutex_lock(&turn);
        note(SYNC_ENDS, 0, number, NULL, NULL, NULL, 0, 0);
        pthread_mutex_unlock(&turn);
    }
    errno = error;
    return failed;
}

int fsync(int descriptor) { return sync_any(descriptor, SYNC_BEGINS, SYS_fsync); }
int fdatasync(int descriptor) { return sync_any(descriptor, SYNC_BEGINS, SYS_fdatasync); }
int syncfs(int descriptor) { return sync_any(descriptor, SYNC_ALL, SYS_syncfs); }

/* -- names ---------------------------------------------------------------------------------------------------------- */

static int rename_any(int from, const char *source, int to, const char *target, unsigned flags) {
    char space[PATH_MAX], more[PATH_MAX];
    const char *full, *other = NULL;
    if (!is_on() || !(is_below(full = full_path(from, source, space)) | is_below(other = full_path(to, target, more))))
        return (int)syscall(SYS_renameat2, from, source, to, target, flags);
    pthread_mutex_lock(&turn);
    int failed = fails(other) ? -1 : (int)syscall(SYS_renameat2, from, source, to, target, flags);
    int error = errno;
    if (!failed) note_names(flags ? STRANGE : RENAME, 0, full, other);
    pthread_mutex_unlock(&turn);
    errno = error;
    return failed;
}

int rename(const char *source, const char *target) { return rename_any(AT_FDCWD, source, AT_FDCWD, target, 0); }
int renameat(int from, const char *source, int to, const char *target) { return rename_any(from, source, to, target, 0); }
int renameat2(int from, const char *source, int to, const char *target, unsigned flags) {
    return rename_any(from, source, to, target, flags);
}

static int remove_any(int folder, const char *path, int flags) {
    char space[PATH_MAX];
    const char *full;
    if (!is_on() || !is_below(full = full_path(folder, path, space)))
        return (int)syscall(SYS_unlinkat, folder, path, flags);
    pthread_mutex_lock(&turn);
    int failed = fails(full) ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
    int error = errno;
    if (!failed) note_names(REMOVE, 0, full, NULL);
    pthread_mutex_unlock(&turn);
    errno = error;
    return failed;
}

int unlink(const char *path) { return remove_any(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return remove_any(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int folder, const char *path, int flags) { return remove_any(folder, path, flags); }

int mkdirat(int folder, const char *path, mode_t mode) {
    char space[PATH_MAX];
    const char *full;
    if (!is_on() || !is_below(full = full_path(folder, path, space)))
        return (int)syscall(SYS_mkdirat, folder, path, mode);
    pthread_mutex_lock(&turn);
    int failed = fails(full) ? -1 : (int)syscall(SYS_mkdirat, folder, path, mode);
    int error = errno;
    struct stat status;
    if (!failed && fstatat(folder, path, &status, 0) == 0) note_names(MAKE_FOLDER, status.st_ino, full, NULL);
    pthread_mutex_unlock(&turn);
    errno = error;
    return failed;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* -- what is not followed ------------------------------------------------------------------------------------------- */

static void strange(int descriptor, const char *what) {
    if (!is_followed(descriptor)) return;
    pthread_mutex_lock(&turn);
    note_names(STRANGE, inode_of(descriptor), what, NULL);
    pthread_mutex_unlock(&turn);
}

void *mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t position) {
    if ((protection & PROT_WRITE) && (flags & MAP_SHARED)) strange(descriptor, "a writable map");
    return (void *)syscall(SYS_mmap, address, size, protection, flags, descriptor, position);
}
void *mmap64(void *address, size_t size, int protection, int flags, int descriptor, off64_t position) {
    return mmap(address, size, protection, flags, descriptor, position);
}
ssize_t sendfile(int target, int source, off_t *position, size_t size) {
    strange(target, "sendfile");
    return syscall(SYS_sendfile, target, source, position, size);
}
ssize_t sendfile64(int target, int source, off64_t *position, size_t size) {
    return sendfile(target, source, position, size);
}
ssize_t copy_file_range(int source, off64_t *from, int target, off64_t *to, size_t size, unsigned flags) {
    strange(target, "copy_file_range");
    return syscall(SYS_copy_file_range, source, from, target, to, size, flags);
}
int fallocate(int descriptor, int mode, off_t position, off_t size) {
    strange(descriptor, "fallocate");
    return (int)syscall(SYS_fallocate, descriptor, mode, position, size);
}
int posix_fallocate(int descriptor, off_t position, off_t size) {
    return fallocate(descriptor, 0, position, size) == 0 ? 0 : errno;
}
int linkat(int from, const char *source, int to, const char *target, int flags) {
    char space[PATH_MAX];
    if (is_on() && is_below(full_path(to, target, space))) note_names(STRANGE, 0, "link", NULL);
    return (int)syscall(SYS_linkat, from, source, to, target, flags);
}
int link(const char *source, const char *target) { return linkat(AT_FDCWD, source, AT_FDCWD, target, 0); }
