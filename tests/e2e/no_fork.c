/* A library for LD_PRELOAD: fork(2) fails with EAGAIN while the file $NO_FORK names the process that asks.
 *
 * What a machine without processes left does, without taking them from everything else that runs on it.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
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
