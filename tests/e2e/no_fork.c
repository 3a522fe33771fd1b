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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

int kill(pid_t pid, int number)
{
    static int (*real)(pid_t, int);
    const char *path = getenv("NO_KILL");

    if (number == SIGKILL && path != NULL && access(path, F_OK) == 0)
        return 0;
    if (real == NULL)
        real = (int (*)(pid_t, int))dlsym(RTLD_NEXT, "kill");
    return real(pid, number);
}
