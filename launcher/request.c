/* Everything that a process has around it, as two messages: streams into the call's box; arguments, environment and
 * limits to the server, with the working directory and the box's other end.
 *
 * A stream on its way to a server that hangs would keep the caller's pipe open, and whoever reads from it waiting,
 * long after the command has been run in another way. What lies in the box can be taken out again. The directory goes
 * ahead: to change to it may take for ever (NFS), and must have been done before the command is the server's.
 *
 * spritz/commandserver/request.py reads them. Numbers are in the machine's own order: both ends are on one machine.
 */

#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMITS 16

struct header {
    char magic[8];
    uint32_t size; /* of the whole message */
    uint32_t argc;
    uint32_t umask;
    uint32_t opened; /* bit n: descriptor n was passed */
    int32_t nice;
    uint32_t pid; /* this, and who we are, as we see it: the server looks whether the kernel tells it the same */
    uint32_t uid;
    uint32_t gid;
    uint64_t blocked; /* bit n-1: signal n */
    uint64_t ignored;
    uint64_t limits[LIMITS][2];
};

static void fill(struct header *header)
{
    struct sigaction action;
    sigset_t blocked;

    memcpy(header->magic, PROTOCOL, sizeof header->magic);
    header->umask = umask(077);
    umask(header->umask);
    header->nice = getpriority(PRIO_PROCESS, 0);
    header->pid = (uint32_t)getpid();
    header->uid = geteuid();
    header->gid = getegid();
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int number = 1; number < 32; number++) {
        if (sigismember(&blocked, number) == 1)
            header->blocked |= 1ULL << (number - 1);
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            header->ignored |= 1ULL << (number - 1);
    }
    for (int which = 0; which < LIMITS; which++) {
        struct rlimit limit;
        if (getrlimit(which, &limit) == 0) {
            header->limits[which][0] = limit.rlim_cur;
            header->limits[which][1] = limit.rlim_max;
        }
    }
}

static char *append(char *at, const char *text)
{
    size_t size = strlen(text) + 1;
    memcpy(at, text, size);
    return at + size;
}

/* So long before another attempt, where as many descriptors of this user as one process may have are on their way. */
#define CROWDED_MS 2

/* The first piece carries the descriptors. Waits for room until `deadline`. */
static int send_all(int connection, const char *data, size_t size, const int *passed, int count, long long deadline)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control;

    while (size) {
        struct iovec piece = {.iov_base = (void *)data, .iov_len = size};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        ssize_t sent;
        if (count) {
            message.msg_control = &control;
            message.msg_controllen = CMSG_SPACE(count * sizeof(int));
            control.header.cmsg_level = SOL_SOCKET;
            control.header.cmsg_type = SCM_RIGHTS;
            control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
            memcpy(CMSG_DATA(&control.header), passed, count * sizeof(int));
        }
        sent = sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == ETOOMANYREFS)) {
            struct pollfd writable = {.fd = errno == EAGAIN ? connection : -1, .events = POLLOUT};
            long long left = deadline - now_ms();
            if (left > CROWDED_MS && writable.fd < 0)
                left = CROWDED_MS;
            if (left <= 0 || (poll(&writable, 1, (int)left) < 0 && errno != EINTR))
                return -1;
            continue;
        }
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -1;
        count = 0;
        data += sent;
        size -= (size_t)sent;
    }
    return 0;
}

int pack(const struct call *call, struct message *message)
{
    struct header header = {0};
    size_t size = sizeof header + strlen(call->path) + 1;
    char *at;

    for (int i = 1; i < call->argc; i++)
        size += strlen(call->argv[i]) + 1;
    for (char **entry = call->environ; *entry; entry++)
        size += strlen(*entry) + 1;
    message->size = size;
    message->data = size < 1U << 30 ? malloc(size) : NULL;
    if (!message->data)
        return -1;
    fill(&header);
    header.opened = call->opened;
    header.size = (uint32_t)size;
    header.argc = (uint32_t)call->argc;
    memcpy(message->data, &header, sizeof header);
    at = append(message->data + sizeof header, call->path);
    for (int i = 1; i < call->argc; i++)
        at = append(at, call->argv[i]);
    for (char **entry = call->environ; *entry; entry++)
        at = append(at, *entry);
    return 0;
}

int open_directory(void)
{
    /* Works in a directory that was removed, or that may not be read. */
    return open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int put_into_box(int end, const struct call *call, long long deadline)
{
    int passed[3], count = 0;

    for (int number = 0; number < 3; number++)
        if (call->opened & 1U << number)
            passed[count++] = number;
    return send_all(end, "D", 1, passed, count, deadline);
}

int send_message(int connection, const struct message *message, int box, int directory, long long deadline)
{
    int passed[] = {box, directory};
    return send_all(connection, message->data, message->size, passed, 2, deadline);
}
