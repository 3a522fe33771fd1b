/* A call through the server.
 *
 * The call's box is a pair of sockets: the caller's streams lie in it as one message, and the server is given its
 * other end. Whoever takes the message out decides: the server's child before it begins, or the launcher when its
 * patience is at an end. So a command is run once, however slow the server is, and nobody has to be asked first.
 *
 * The child is in a process group of its own in the server's session. It makes itself the owner (fcntl(2), F_SETOWN) of
 * the box before it takes out what is in it, to hear of the launcher's end; so the launcher knows where signals are to
 * go. That the child stopped is told by the server, and then the launcher, which is in the caller's job, stops too.
 */

#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* What the server says: spritz/commandserver/reply.py. */
struct reply {
    char kind;
    char unused[3];
    int32_t value;
};
#define ENDED 'E'
#define KILLED 'K'
#define STOPPED 'T'

/* For the reply of a command that is done, in milliseconds. */
enum { REPLY_MS = 1000 };

static const int FORWARDED[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH, SIGUSR1, SIGUSR2, SIGALRM, 0};

long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* To a server of the same user: 0, or -1 with the reason in errno. */
static int connect_socket(int connection, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;

    if (snprintf(address.sun_path, sizeof address.sun_path, "%s", path) >= (int)sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (connect(connection, (struct sockaddr *)&address, sizeof address) < 0)
        return -1;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid())
        return 0;
    errno = EACCES;
    return -1;
}

/* By its path, where that is short enough: by way of /proc the kernel would make directories there for this process
 * (place.c). Whoever could exchange a directory of the path in between would lead to a server of ours nevertheless. */
static int connect_own(const struct place *place, const char *base)
{
    char path[sizeof ((struct sockaddr_un *)0)->sun_path];
    if (!place->path[0] || snprintf(path, sizeof path, "%s/%s", place->path, base) >= (int)sizeof path)
        snprintf(path, sizeof path, "/proc/self/fd/%d/%s", place->directory, base);
    return connect_socket(place->connection, path);
}

static int is_nobody_there(int status)
{
    return status < 0 && (errno == ENOENT || errno == ECONNREFUSED);
}

static int connect_server(const struct place *place)
{
    int status;
    if (place->of_job[0] && !is_nobody_there(status = connect_own(place, place->of_job)))
        return status;
    return connect_own(place, place->base);
}

/* Who has the call: that is settled when the box is found empty, or emptied here. */
enum owner { NOBODY_YET, SERVER, LAUNCHER };

/* What a call through the server has. */
struct exchange {
    const struct call *call;
    int directory; /* the caller's */
    int connection;
    int signals;  /* signalfd(2): those that are forwarded */
    int take_out; /* the box's end that the server has, too */
    enum owner owner;
};

/* From before the command may begin: none is to end the launcher alone. */
static sigset_t held_before;

/* Forwarded signals are held, and read from the descriptor that is returned; -1 if there can be none. */
static int hold_signals(void)
{
    sigset_t held;
    sigemptyset(&held);
    for (const int *number = FORWARDED; *number; number++)
        sigaddset(&held, *number);
    sigprocmask(SIG_BLOCK, &held, &held_before);
    return signalfd(-1, &held, SFD_NONBLOCK | SFD_CLOEXEC);
}

static void release_signals(void)
{
    sigprocmask(SIG_SETMASK, &held_before, NULL);
}

static void let_in(int number)
{
    sigset_t only;
    signal(number, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
}

static void die_by(int number) __attribute__((noreturn));
static void die_by(int number)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none); /* the command has left one, if any */
    let_in(number);
    raise(number);
    _exit(128 + number);
}

/* Whether the server has taken the call. If not, it never will: the call is ours again. */
static int has_begun(struct exchange *exchange)
{
    char taken_out;
    if (exchange->owner == NOBODY_YET)
        exchange->owner = recv(exchange->take_out, &taken_out, 1, MSG_DONTWAIT) == 1 ? LAUNCHER : SERVER;
    return exchange->owner == SERVER;
}

/* The process at work on the call; 0 if it has ended, or is none of ours. */
static pid_t find_child(const struct exchange *exchange)
{
    int owner = fcntl(exchange->take_out, F_GETOWN);
    return owner > 1 ? owner : 0;
}

/* Pass on what has come. Whether SIGCONT was among it. */
static int forward(const struct exchange *exchange)
{
    struct signalfd_siginfo info;
    pid_t child = find_child(exchange);
    int continued = 0;

    if (!child) {
        struct pollfd reply = {.fd = exchange->connection, .events = POLLIN};
        sigset_t held;
        if (poll(&reply, 1, REPLY_MS) > 0)
            return 0; /* the command is done, and its reply counts: a job that requeues itself asks whether it worked */
        /* Signals are for the launcher alone: deliver them to it. */
        sigprocmask(SIG_SETMASK, &held_before, &held);
        sigprocmask(SIG_SETMASK, &held, NULL);
        return 0;
    }
    while (read(exchange->signals, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;
        continued |= number == SIGCONT;
        /* The terminal sends signals to a whole process group, and so does a shell that continues a job. */
        kill(info.ssi_code > 0 || number == SIGCONT ? -child : child, number);
    }
    return continued;
}

/* The command has stopped: so does the launcher, by the same signal, which the shell tells. Where that has no effect, as
 * at a terminal's signals in a group that no shell looks after, the command would not have stopped in this place. */
static void stop_by(const struct exchange *exchange, int number)
{
    sigset_t held;
    forward(exchange);
    sigprocmask(SIG_BLOCK, NULL, &held);
    let_in(number);
    raise(number);
    sigprocmask(SIG_SETMASK, &held, NULL);
    if (!forward(exchange)) {
        pid_t child = find_child(exchange);
        if (child)
            kill(-child, SIGCONT);
    }
}

/* A whole reply, and forward signals meanwhile. 0 at the end of the connection, and where the call is ours again because
 * of a signal; -1 where it is ours again after `deadline`. */
static int receive(struct exchange *exchange, struct reply *reply, long long deadline)
{
    size_t have = 0;
    while (have < sizeof *reply) {
        struct pollfd ready[] = {{.fd = exchange->connection, .events = POLLIN},
                                 {.fd = exchange->signals, .events = POLLIN}};
        long long left = exchange->owner == SERVER ? 0 : deadline - now_ms();
        int count = poll(ready, 2, exchange->owner == SERVER ? -1 : left > 0 ? (int)left : 0);
        if (count == 0 && !has_begun(exchange))
            return -1;
        if (count > 0 && ready[0].revents) {
            ssize_t got = recv(exchange->connection, (char *)reply + have, sizeof *reply - have, MSG_DONTWAIT);
            if (got > 0)
                have += (size_t)got;
            else if (got == 0 || (errno != EAGAIN && errno != EINTR))
                return 0;
        } else if (count > 0) {
            if (!has_begun(exchange))
                return 0;
            forward(exchange);
        }
    }
    return 1;
}

static void fail(const struct call *call) __attribute__((noreturn));
static void fail(const struct call *call)
{
    dprintf(2, "%s: error: the command server ended in the middle of this call\n", call->name);
    _exit(1);
}

/* To the end of the command. Returns where it has not begun, and never will. */
static enum outcome follow(struct exchange *exchange, long long deadline)
{
    struct reply reply;
    int got;
    while ((got = receive(exchange, &reply, deadline)) > 0) {
        if (!has_begun(exchange))
            return OUTCOME_DECLINED; /* whatever this is, it is no server */
        if (reply.kind == ENDED)
            _exit(reply.value);
        if (reply.kind == KILLED)
            die_by(reply.value);
        if (reply.kind == STOPPED)
            stop_by(exchange, reply.value);
    }
    if (has_begun(exchange))
        fail(exchange->call);
    return got < 0 ? OUTCOME_HUNG : OUTCOME_DECLINED;
}

/* The call's message is on its way to somebody who may take it. Returns where the command has not begun. */
static enum outcome hand_over(struct exchange *exchange, const struct message *message, long long deadline)
{
    enum outcome outcome = OUTCOME_DECLINED;
    exchange->signals = hold_signals();
    if (exchange->signals >= 0) {
        if (send_message(exchange->connection, message, exchange->take_out, exchange->directory, deadline) == 0)
            outcome = follow(exchange, deadline);
        else if (has_begun(exchange))
            fail(exchange->call);
        else if (now_ms() >= deadline)
            outcome = OUTCOME_HUNG;
        close(exchange->signals);
    }
    /* Those that have come meet the launcher. */
    release_signals();
    return outcome;
}

enum outcome serve(const struct call *call, const struct place *place)
{
    struct exchange exchange = {.call = call, .directory = open_directory()};
    struct message message;
    enum outcome outcome = OUTCOME_DECLINED;
    long long deadline = now_ms() + PATIENCE_MS;
    int box[2];

    if (exchange.directory < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, box) < 0)
        return OUTCOME_DECLINED;
    exchange.connection = place->connection;
    exchange.take_out = box[1];
    /* All that can be is done before anybody is woken. */
    if (pack(call, &message) == 0 && put_into_box(box[0], call, deadline) == 0) {
        if (connect_server(place) == 0)
            outcome = hand_over(&exchange, &message, deadline);
        else if (is_nobody_there(-1))
            outcome = OUTCOME_NOBODY;
        free(message.data);
    }
    close(place->connection);
    close(exchange.directory);
    close(box[0]);
    close(box[1]);
    return outcome;
}
