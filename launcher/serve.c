/* A call through the server.
 *
 * The call's token is an event counter that holds 1 once everything has been sent. Whoever reads it decides: the
 * server's child before it begins, or the launcher when its patience is at an end. So a command is run once, however
 * slow the server is. It also tells that the last system call that sends is over: until then the kernel may still
 * signal the message, and a child that is to die of whatever else comes over the connection would die of that.
 *
 * The child is in a process group of its own in the server's session. Signals go to it from here; that it stopped is
 * told by the server, and then the launcher, which is in the caller's job, stops too.
 */

#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SYSTEM_DIRECTORY "/run/spritz"

/* What the server says: spritz/cli/server/reply.py. */
struct reply {
    char kind;
    char unused[3];
    int32_t value;
};
#define THERE 'H'
#define STARTED 'S'
#define ENDED 'E'
#define KILLED 'K'
#define STOPPED 'T'

static const int FORWARDED[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH, SIGUSR1, SIGUSR2, SIGALRM, 0};

static volatile sig_atomic_t child;
/* SIGCONT has come since the command stopped. */
static volatile sig_atomic_t continued;

long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* The terminal sends signals to a whole process group, and so does a shell that continues a job. */
static void forward(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    (void)context;
    continued |= number == SIGCONT;
    if (child > 0)
        kill(info->si_code > 0 || number == SIGCONT ? -child : child, number);
    errno = saved;
}

/* A connection to a server of ours or root's; -1 with the reason in errno. */
static int connect_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;
    int connection, reason;

    if (snprintf(address.sun_path, sizeof address.sun_path, "%s", path) >= (int)sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection < 0)
        return -1;
    if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0) {
        if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
            (peer.uid == geteuid() || peer.uid == 0))
            return connection;
        errno = EACCES;
    }
    reason = errno;
    close(connection);
    errno = reason;
    return -1;
}

/* The site's own server, for all users, if root runs one here. */
static int connect_system(const struct place *place)
{
    char path[PATH_MAX];
    struct stat info;
    if (lstat(SYSTEM_DIRECTORY, &info) < 0 || !S_ISDIR(info.st_mode) || info.st_uid != 0 || (info.st_mode & 022))
        return -1;
    snprintf(path, sizeof path, SYSTEM_DIRECTORY "/%s", place->base);
    return connect_socket(path);
}

static int connect_server(const struct place *place)
{
    char path[64];
    int connection, reason;
    if (place->directory < 0)
        return connect_system(place);
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", place->directory, place->base);
    connection = connect_socket(path);
    if (connection >= 0 || (errno != ENOENT && errno != ECONNREFUSED))
        return connection;
    reason = errno;
    connection = connect_system(place);
    errno = reason;
    return connection;
}

/* A whole reply; 0 at the end of the connection; -1 after `deadline` (0: none). */
static int receive(int connection, struct reply *reply, long long deadline)
{
    size_t have = 0;
    while (have < sizeof *reply) {
        ssize_t got = recv(connection, (char *)reply + have, sizeof *reply - have, MSG_DONTWAIT);
        if (got > 0) {
            have += (size_t)got;
        } else if (got == 0) {
            return 0;
        } else if (errno == EAGAIN) {
            struct pollfd readable = {.fd = connection, .events = POLLIN};
            long long left = deadline ? deadline - now_ms() : -1;
            if (deadline && left <= 0)
                return -1;
            poll(&readable, 1, (int)left);
        } else if (errno != EINTR) {
            return 0;
        }
    }
    return 1;
}

static void take_over_signals(void)
{
    struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    for (const int *number = FORWARDED; *number; number++)
        sigaction(*number, &action, NULL);
}

/* From before the command may begin until signals are forwarded: none is to end the launcher alone. */
static sigset_t held_before;

static void hold_signals(void)
{
    sigset_t held;
    sigemptyset(&held);
    for (const int *number = FORWARDED; *number; number++)
        sigaddset(&held, *number);
    sigprocmask(SIG_BLOCK, &held, &held_before);
}

static void release_signals(void)
{
    sigprocmask(SIG_SETMASK, &held_before, NULL);
}

static void die_by(int number) __attribute__((noreturn));
static void die_by(int number)
{
    struct rlimit none = {0, 0};
    sigset_t only;
    setrlimit(RLIMIT_CORE, &none); /* the command has left one, if any */
    signal(number, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
    _exit(128 + number);
}

/* The command has stopped: so does the launcher, by the same signal, which the shell tells. Where that has no effect, as
 * at a terminal's signals in a group that no shell looks after, the command would not have stopped in this place. */
static void stop_by(int number)
{
    continued = 0;
    signal(number, SIG_DFL);
    raise(number);
    take_over_signals();
    if (!continued)
        kill(-child, SIGCONT);
}

static void fail(const struct call *call) __attribute__((noreturn));
static void fail(const struct call *call)
{
    dprintf(2, "%s: error: the command server ended in the middle of this call\n", call->name);
    _exit(1);
}

/* From the word that the command has begun to its end. */
static void follow(const struct call *call, int connection, int pid) __attribute__((noreturn));
static void follow(const struct call *call, int connection, int pid)
{
    struct reply reply;
    child = pid;
    take_over_signals();
    release_signals();
    while (receive(connection, &reply, 0) > 0) {
        if (reply.kind == ENDED)
            _exit(reply.value);
        if (reply.kind == KILLED)
            die_by(reply.value);
        if (reply.kind == STOPPED)
            stop_by(reply.value);
    }
    fail(call);
}

static int offered;

static int offer(int token)
{
    uint64_t one = 1;
    offered = write(token, &one, sizeof one) == sizeof one;
    return offered ? 0 : -1;
}

/* The token has not been taken, and from now on cannot be: the call is ours. */
static int take_back(int token)
{
    uint64_t value;
    ssize_t got;
    if (!offered)
        return 1;
    do
        got = read(token, &value, sizeof value);
    while (got < 0 && errno == EINTR);
    return got == sizeof value;
}

/* Up to the word that the command has begun: 1 with its process id, 0 for a refusal, -1 at the end of our patience. */
static int begin(int connection, const struct call *call, int token, int *pid)
{
    long long deadline = now_ms() + PATIENCE_MS;
    struct reply reply;
    int got = send_surroundings(connection, call, deadline) < 0 ? 0 : receive(connection, &reply, deadline);

    hold_signals();
    if (got > 0 && reply.kind == THERE && send_descriptors(connection, call, token, deadline) == 0 &&
        offer(token) == 0)
        got = receive(connection, &reply, deadline);
    else if (got > 0)
        return 0;
    *pid = reply.value;
    if (got > 0)
        return reply.kind == STARTED;
    return got < 0 || now_ms() >= deadline ? -1 : 0;
}

enum outcome serve(const struct call *call, const struct place *place)
{
    struct reply reply;
    int token, got, pid = 0, connection = connect_server(place);

    if (connection < 0)
        return (errno == ENOENT || errno == ECONNREFUSED) && place->directory >= 0 ? OUTCOME_NOBODY : OUTCOME_DECLINED;
    offered = 0;
    token = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (token < 0) {
        close(connection);
        return OUTCOME_DECLINED;
    }
    got = begin(connection, call, token, &pid);
    if (got > 0)
        follow(call, connection, pid);
    if (!take_back(token)) {
        /* It has begun, and may say so yet. Nobody is there to pass signals on to: they are the launcher's own. */
        release_signals();
        if (receive(connection, &reply, 0) > 0 && reply.kind == STARTED)
            follow(call, connection, reply.value);
        fail(call);
    }
    release_signals();
    close(connection);
    close(token);
    return got < 0 ? OUTCOME_HUNG : OUTCOME_DECLINED;
}
