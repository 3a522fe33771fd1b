/* Where the Python side of the commands is, and where its server listens.
 *
 * The socket lies in $XDG_RUNTIME_DIR/spritz or /tmp/spritz-UID: a directory that is ours alone, checked through its
 * descriptor, so that nobody can exchange it in between. Its name is a hash of what must be the same on both sides.
 */

#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* SO_NETNS_COOKIE, also where the headers are older; tests have another one, which no kernel knows. */
#ifndef NETNS_COOKIE
#define NETNS_COOKIE 71
#endif

#define SCRIPT "spritz-command"

/* "#!/path/python3" of the script, whose path may be longer than the kernel takes there and have spaces in it.
 * Anything else is left to the kernel. */
void find_interpreter(struct place *place)
{
    char line[PATH_MAX + 4];
    ssize_t got;
    char *end, *slash;
    int file = open(place->script, O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return;
    got = read(file, line, sizeof line - 1);
    close(file);
    if (got < 4)
        return;
    line[got] = 0;
    end = strchr(line, '\n');
    if (strncmp(line, "#!/", 3) || !end)
        return;
    *end = 0;
    slash = strrchr(line, '/');
    if (!strncmp(slash + 1, "python", 6) && (!strchr(line, ' ') || access(line + 2, X_OK) == 0))
        strcpy(place->interpreter, line + 2);
}

/* The script lies beside the launcher, or beside what a symbolic link to it leads to. */
int find_script(const struct call *call, struct place *place)
{
    char resolved[PATH_MAX];
    const char *from = call->path;
    struct stat info;

    for (int attempt = 0; attempt < 2; attempt++) {
        const char *slash = strrchr(from, '/');
        int length = slash ? (int)(slash - from) + 1 : 0;
        if (snprintf(place->script, sizeof place->script, "%.*s" SCRIPT, length, from) < (int)sizeof place->script &&
            stat(place->script, &info) == 0) {
            snprintf(place->stamp, sizeof place->stamp, "%llx:%llx:%llx.%lx", (unsigned long long)info.st_dev,
                     (unsigned long long)info.st_ino, (unsigned long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
            return 0;
        }
        ssize_t got = readlink("/proc/self/exe", resolved, sizeof resolved - 1);
        if (got <= 0)
            return -1;
        resolved[got] = 0;
        from = resolved;
    }
    return -1;
}

static void mix(uint64_t *hash, const void *data, size_t size)
{
    /* FNV-1a. It names a file and protects nothing. */
    for (const unsigned char *at = data; size--; at++)
        *hash = (*hash ^ *at) * 0x100000001b3ULL;
}

/* Which files these are, by device and inode. */
static int mix_files(uint64_t *hash, const char *const *path)
{
    for (; *path; path++) {
        struct stat info;
        if (stat(*path, &info) < 0)
            return -1;
        mix(hash, &info.st_dev, sizeof info.st_dev);
        mix(hash, &info.st_ino, sizeof info.st_ino);
    }
    return 0;
}

/* statx(2), whatever the headers know of it: the number of the mount that a path is on. No two mount namespaces have
 * one in common. */
static int root_mount(uint64_t *number)
{
    enum { MASK = 0, MOUNT = 0x90 / 8, STATX_MOUNT = 0x1000 };
    uint64_t info[32];
    if (syscall(SYS_statx, AT_FDCWD, "/", 0, STATX_MOUNT, info) < 0 || !(info[MASK] & STATX_MOUNT))
        return -1;
    *number = info[MOUNT];
    return 0;
}

/* A server in another container would look at other files, hosts and processes.
 *
 * To look into /proc for the namespaces costs as much as the start of this program: the kernel makes directories there
 * for each process that does. So they are asked for in other words. What is not among these, the namespaces of
 * processes and users, the server sees to itself: it knows the caller by the numbers that the kernel tells, and
 * declines who has others for himself (docs/decisions/0168). Kernels before 5.14 do not tell the network's. */
static int mix_surroundings(uint64_t *hash, int connection)
{
    static const char *const ROOT[] = {"/", NULL};
    static const char *const NAMESPACES[] = {"/proc/self/ns/mnt",  "/proc/self/ns/net", "/proc/self/ns/pid",
                                             "/proc/self/ns/user", "/proc/self/ns/uts", NULL};
    uint64_t network, mount;
    socklen_t size = sizeof network;
    struct utsname host;

    if (mix_files(hash, ROOT) < 0)
        return -1;
    if (getsockopt(connection, SOL_SOCKET, NETNS_COOKIE, &network, &size) < 0 || root_mount(&mount) < 0)
        return mix_files(hash, NAMESPACES);
    if (uname(&host) < 0)
        return -1;
    mix(hash, &network, sizeof network);
    mix(hash, &mount, sizeof mount);
    mix(hash, host.nodename, strlen(host.nodename));
    return 0;
}

/* PYTHONPATH counts where Spritz itself is found on it. */
static void find_python_path(struct place *place)
{
    const char *path = getenv("PYTHONPATH");
    if (!path || strlen(path) >= sizeof place->python_path)
        return;
    for (const char *part = path; part; part = strchr(part, ':') ? strchr(part, ':') + 1 : NULL) {
        char probe[PATH_MAX];
        int length = (int)strcspn(part, ":");
        snprintf(probe, sizeof probe, "%.*s/spritz/__init__.py", length, part);
        if (length && access(probe, R_OK) == 0) {
            strcpy(place->python_path, path);
            return;
        }
    }
}

/* A directory's descriptor if it is ours and nobody else's, made if it is not there; else -1. */
static int own_directory(int parent, const char *name)
{
    struct stat info;
    int directory = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0 && errno == ENOENT && mkdirat(parent, name, 0700) == 0)
        directory = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0)
        return -1;
    if (fstat(directory, &info) == 0 && info.st_uid == geteuid() && !(info.st_mode & 077))
        return directory;
    close(directory);
    return -1;
}

static int find_directory(struct place *place)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime && runtime[0] == '/') {
        int parent = open(runtime, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct stat info;
        if (parent >= 0 && fstat(parent, &info) == 0 && info.st_uid == geteuid() && !(info.st_mode & 077)) {
            int found = own_directory(parent, "spritz");
            close(parent);
            if (snprintf(place->path, sizeof place->path, "%s/spritz", runtime) >= (int)sizeof place->path)
                place->path[0] = 0;
            return found;
        } else if (parent >= 0) {
            close(parent);
        }
    }
    snprintf(place->path, sizeof place->path, "/tmp/spritz-%lu", (unsigned long)geteuid());
    return own_directory(AT_FDCWD, place->path);
}

/* A batch script leads a session, whose number is its job's alone as long as the job runs. Tasks have sessions, too, but
 * a server for each of them would be too many. */
static int in_batch_script(void)
{
    return getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID");
}

int find_place(const struct call *call, struct place *place)
{
    uint64_t hash = 0xcbf29ce484222325ULL;
    (void)call;
    find_python_path(place);
    mix(&hash, PROTOCOL, sizeof PROTOCOL);
    mix(&hash, place->stamp, strlen(place->stamp));
    mix(&hash, place->python_path, strlen(place->python_path));
    place->connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (place->connection < 0)
        return -1;
    if (mix_surroundings(&hash, place->connection) < 0) {
        close(place->connection);
        return -1;
    }
    snprintf(place->base, sizeof place->base, "commands-%016llx", (unsigned long long)hash);
    if (in_batch_script()) {
        pid_t session = getsid(0);
        mix(&hash, &session, sizeof session);
        snprintf(place->of_job, sizeof place->of_job, "commands-%016llx", (unsigned long long)hash);
    }
    place->directory = find_directory(place);
    if (place->directory < 0) {
        close(place->connection);
        return -1;
    }
    return 0;
}
