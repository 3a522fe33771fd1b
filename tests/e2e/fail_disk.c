/* A library for LD_PRELOAD: one of the calls that write below the directory $FAIL_DISK fails, and is counted.
 *
 * $FAIL_DISK_STATE is a file that all processes share: which call fails (1: the next; 0: none), with which errno, and
 * whether all later ones do too; in return, the name of the call that failed. What a disk does that is full for a
 * moment, or from then on, or that is about to die.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

struct state {
    int left;
    int number;
    int lasting;
    int failed;
    char name[16];
};

static struct state *state;
static const char *below;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAIL_DISK_STATE");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);

    below = getenv("FAIL_DISK");
    if (file < 0 || below == NULL)
        return;
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (state == MAP_FAILED)
        state = NULL;
    close(file);
}

static int fails(const char *name)
{
    int left;

    if (state->lasting && state->failed) {
        errno = state->number;
        return 1;
    }
    left = __sync_fetch_and_sub(&state->left, 1);
    if (left != 1)
        return 0;
    strncpy(state->name, name, sizeof state->name - 1);
    __sync_synchronize();
    state->failed = 1;
    errno = state->number;
    return 1;
}

static int path_fails(const char *name, const char *path)
{
    char whole[PATH_MAX];

    if (state == NULL || (state->left <= 0 && !state->lasting))
        return 0;
    if (path[0] != '/') {
        if (getcwd(whole, sizeof whole) == NULL)
            return 0;
        path = whole;
    }
    return strncmp(path, below, strlen(below)) == 0 && fails(name);
}

static int file_fails(const char *name, int file)
{
    char link[64], whole[PATH_MAX];
    ssize_t size;

    if (state == NULL || (state->left <= 0 && !state->lasting))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    size = readlink(link, whole, sizeof whole - 1);
    if (size < 0)
        return 0;
    whole[size] = '\0';
    return strncmp(whole, below, strlen(below)) == 0 && fails(name);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OF_PATH(name, path, parameters, arguments) \
    int name parameters { return path_fails(#name, path) ? -1 : REAL(name) arguments; }
#define OF_FILE(type, name, file, parameters, arguments) \
    type name parameters { return file_fails(#name, file) ? -1 : REAL(name) arguments; }

OF_PATH(mkdir, path, (const char *path, mode_t mode), (path, mode))
OF_PATH(rmdir, path, (const char *path), (path))
OF_PATH(unlink, path, (const char *path), (path))
OF_PATH(rename, to, (const char *from, const char *to), (from, to))
OF_PATH(link, to, (const char *from, const char *to), (from, to))
OF_PATH(truncate64, path, (const char *path, off64_t size), (path, size))
OF_FILE(ssize_t, write, file, (int file, const void *data, size_t size), (file, data, size))
OF_FILE(ssize_t, pwrite64, file, (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
OF_FILE(int, fsync, file, (int file), (file))
OF_FILE(int, fchown, file, (int file, uid_t user, gid_t group), (file, user, group))
OF_FILE(int, fsetxattr, file, (int file, const char *name, const void *value, size_t size, int flags),
        (file, name, value, size, flags))

int bind(int file, const struct sockaddr *address, socklen_t size)
{
    const char *path = ((const struct sockaddr_un *)address)->sun_path;

    if (address->sa_family == AF_UNIX && size > sizeof(sa_family_t) && path[0] != '\0' && path_fails("bind", path))
        return -1;
    return REAL(bind)(file, address, size);
}

static int opened(const char *name, int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
    return (flags & (O_WRONLY | O_RDWR)) && path_fails(name, path) ? -1 : real(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list more;

    va_start(more, flags);
    if (flags & O_CREAT)
        mode = va_arg(more, mode_t);
    va_end(more);
    return opened("open", REAL(open), path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list more;

    va_start(more, flags);
    if (flags & O_CREAT)
        mode = va_arg(more, mode_t);
    va_end(more);
    return opened("open", REAL(open64), path, flags, mode);
}
