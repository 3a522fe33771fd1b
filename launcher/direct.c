/* Executing Python for this call, and starting a server for the next. */

#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Between two attempts: a server that cannot start must not cost every call. */
#define AGAIN_SECONDS 3
/* A server that works touches its lock at least every second; one that is merely busy is not replaced. */
#ifndef STUCK_SECONDS
#define STUCK_SECONDS 10
#endif

/* Jobs with less memory get no server. */
#define ROOM_MIB 256

void run_directly(const struct call *call, const struct place *found)
{
    struct place place = *found;
    char **words = calloc((size_t)call->argc + 8, sizeof *words);
    int count = 0;

    if (!words)
        _exit(127);
    find_interpreter(&place);
    if (place.interpreter[0]) {
        words[count++] = place.interpreter;
        words[count++] = "-P"; /* no directory but Python's own is a place to look for modules */
    }
    words[count++] = place.script;
    words[count++] = (char *)call->path;
    for (int i = 1; i < call->argc; i++)
        words[count++] = call->argv[i];
    execve(words[0], words, call->environ);
    dprintf(2, "%s: error: %s: %s\n", call->name, words[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

/* Nothing of this caller is to be in a process that serves others of the same user, or its next session. */
static char **server_environment(const struct place *place)
{
    static const char *const KEPT[] = {"HOME", "PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUSERBASE", NULL};
    static char *kept[16];
    int count = 0;
    for (const char *const *name = KEPT; *name; name++) {
        const char *value = getenv(*name);
        if (value && asprintf(&kept[count], "%s=%s", *name, value) >= 0)
            count++;
    }
    if (place->python_path[0] && asprintf(&kept[count], "PYTHONPATH=%s", place->python_path) >= 0)
        count++;
    kept[count++] = "LC_ALL=C.UTF-8";
    kept[count] = NULL;
    return kept;
}

static const char *server_name(const struct place *place)
{
    return place->of_job[0] ? place->of_job : place->base;
}

/* Whether this call is to start one, which the lock's size and time tell. A batch script's server costs memory and
 * processors of its job, so that the first call only leaves a byte: a second one soon after is likely to be a loop. */
static int may_start(const struct place *place, int lock, const struct stat *info)
{
    long long age = time(NULL) - info->st_mtime;
    int lately = info->st_size > 0 && age >= 0 && age <= AGAIN_SECONDS;
    if (!place->of_job[0])
        return !lately && pwrite(lock, "1", 1, 0) == 1;
    if (lately)
        return info->st_size == 1 && pwrite(lock, "2", 1, 1) == 1;
    return ftruncate(lock, 0) == 0 && pwrite(lock, "1", 1, 0) < 0;
}

/* Held by whoever starts, and then by the server as long as it listens. -1: somebody does already, or just did. */
static int take_lock(const struct place *place, int replace)
{
    char path[96];
    struct stat info;
    int lock;

    snprintf(path, sizeof path, "/proc/self/fd/%d/%s.lock", place->directory, server_name(place));
    if (replace) {
        /* One that is ahead of a clock that was set back says nothing. */
        if (lstat(path, &info) == 0 && time(NULL) - info.st_mtime < STUCK_SECONDS && time(NULL) >= info.st_mtime)
            return -1;
        /* It finds its socket gone when it moves again, and ends. */
        unlink(path);
        path[strlen(path) - 5] = 0;
        unlink(path);
        strcat(path, ".lock");
    }
    lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0)
        return -1;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0 && fstat(lock, &info) == 0 && may_start(place, lock, &info))
        return lock;
    close(lock);
    return -1;
}

static void become_server(const struct place *place, char **environment, int lock) __attribute__((noreturn));
static void become_server(const struct place *place, char **environment, int lock)
{
    char directory[PATH_MAX], link[64];
    char *words[] = {(char *)place->interpreter, "-P", (char *)place->script, "--serve", "--directory", directory,
                     "--name", (char *)server_name(place), "--lock", "3", "--installed", (char *)place->script,
                     place->of_job[0] ? "--job" : NULL, "yes", NULL};
    ssize_t got;
    sigset_t none;
    cpu_set_t everywhere;

    snprintf(link, sizeof link, "/proc/self/fd/%d", place->directory);
    got = readlink(link, directory, sizeof directory - 1);
    if (got <= 0)
        _exit(1);
    directory[got] = 0;
    for (int number = 1; number < 65; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!place->of_job[0]) {
        memset(&everywhere, 0xff, sizeof everywhere);
        sched_setaffinity(0, sizeof everywhere, &everywhere);
    }
    umask(077);
    lock = fcntl(lock, F_DUPFD, 3);
    if (lock < 0 || dup2(lock, 3) < 0)
        _exit(1);
    for (int number = 0; number < 3; number++) {
        int null = open("/dev/null", O_RDWR);
        if (null < 0 || (null != number && (dup2(null, number) < 0 || close(null) < 0)))
            _exit(1);
    }
    /* A caller's pipe that stays open here would keep `$(squeue)` waiting. */
    if (syscall(SYS_close_range, 4U, ~0U, 0U) < 0)
        for (int number = 4; number < 1024; number++)
            close(number);
    execve(words[0], words, environment);
    _exit(1);
}

/* A variable that is a number; -1 where there is none. */
static long number_of(const char *name)
{
    const char *digit = getenv(name);
    long number = digit && *digit ? 0 : -1;
    for (; digit && *digit >= '0' && *digit <= '9' && number < 1L << 24; digit++)
        number = number * 10 + *digit - '0';
    return number;
}

/* A batch script without a terminal, since a job's server does not tell of commands that stop (parent.py), and with
 * memory to spare: a server and its children take some 40 MiB. */
static int suits_job(const struct place *place)
{
    long of_node = number_of("SLURM_MEM_PER_NODE"), of_cpu = number_of("SLURM_MEM_PER_CPU");
    int terminal;

    if (!place->of_job[0])
        return 0;
    if (of_node < 0 && of_cpu >= 0)
        of_node = of_cpu * number_of("SLURM_CPUS_ON_NODE");
    if (of_node >= 0 && of_node < ROOM_MIB)
        return 0;
    terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal >= 0)
        close(terminal);
    return terminal < 0;
}

void start_server(const struct call *call, const struct place *found, int replace)
{
    struct place place = *found;
    char **environment;
    int lock, intermediate;

    (void)call;
    /* In a job a server ends with it, so that it must be the job's own; and it would share a caller's low priority. */
    if ((getenv("SLURM_JOB_ID") && !suits_job(&place)) || getpriority(PRIO_PROCESS, 0) > 0)
        return;
    find_interpreter(&place);
    if (!place.interpreter[0] || (lock = take_lock(&place, replace)) < 0)
        return;
    environment = server_environment(&place);
    intermediate = fork();
    if (intermediate == 0) {
        setsid();
        if (fork() == 0)
            become_server(&place, environment, lock);
        _exit(0);
    }
    close(lock);
    if (intermediate > 0)
        while (waitpid(intermediate, NULL, 0) < 0 && errno == EINTR)
            ;
}
