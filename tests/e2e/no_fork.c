/* A library for LD_PRELOAD: fork(2) fails with EAGAIN while the file $NO_FORK names the process that asks, and
 * SIGKILL has no effect while the file $NO_KILL is there.
 *
 * What a machine without processes left does, without taking them from everything else that runs on it; and a process
 * in the middle of a system call that does not come back.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

pid_t fork(void)
{
    static pid_t (*real)(void);
    const char *path = getenv("NO_FORK");
    char wanted[64] = "", own[64] = "";
    FILE *file = path == NULL ? NULL : fopen(path, "r");

    if (file != NULL) {
        if (fscanf(file, "%60s", wanted) == 1 && prctl(PR_GET_NAME, own) == 0 && strcmp(wanted, own) == 0) {
            fclose(file);
            errno = EAGAIN;
            return -1;
        }
        fclose(file);
    }
    if (real == NULL)
        real = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    return real();
}

static int is_ignored(int number)
{
    const char *path = getenv("NO_KILL");

    return number == SIGKILL && path != NULL && access(path, F_OK) == 0;
}

/* pidfd_send_signal(2), for which the C library has no name */
long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long given[6];
    va_list more;

    va_start(more, number);
    for (int i = 0; i < 6; i++)
        given[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_pidfd_send_signal && is_ignored((int)given[1]))
        return 0;
    if (real == NULL)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

int kill(pid_t pid, int number)
{
    static int (*real)(pid_t, int);

    if (is_ignored(number))
        return 0;
    if (real == NULL)
        real = (int (*)(pid_t, int))dlsym(RTLD_NEXT, "kill");
    return real(pid, number);
}
