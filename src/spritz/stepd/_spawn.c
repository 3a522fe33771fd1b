/* Starting a task without copying its supervisor: vfork(2), what must be done in the child, execve(2).

A fork of a Python process costs 2 ms, most of it for pages that are copied only to be thrown away; this costs 0.4.
`stepd.tasks.start` has the same steps in Python, for tasks that need more (a TaskProlog) and for machines without a C
compiler; tests compare the two.

The child shares our memory until it has become the program, and we stand still meanwhile. So it only makes system
calls, and raw ones where the C library would tell its threads (setuid and its kin); it allocates nothing, and every
signal is blocked until it has handlers of its own. Names of its own (`stepd.tasks.namespaces`) it gets by being cloned
into new namespaces. Sources: vfork(2), clone(2), signal-safety(7), credentials(7), user_namespaces(7).
*/
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct limit {
    int number;
    rlim_t soft;
    const char *complaint;
    size_t length;
};

struct plan {
    char **programs;       /* one path, or the places of PATH to look at, then the name itself */
    int search;            /* take the first of them that is a regular file and may be executed */
    char **argv;
    char **env;
    char pid_text[40];     /* the last variable: SLURM_TASK_PID=123 */
    int streams[3];
    int terminal;          /* stream 0 is a terminal that becomes the session's */
    const char *oom_score; /* to write to oom_score_adj, or NULL */
    size_t oom_score_length;
    cpu_set_t *cpus;
    size_t cpus_size;
    int niceness;
    struct limit *limits;
    Py_ssize_t limits_count;
    int switch_user;
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t groups_count;
    mode_t mask;
    const char *hosts_file; /* to be seen as /etc/hosts in namespaces of the task's own, or "" */
    const char *node;       /* and its host name there */
    Py_ssize_t node_length;
    int namespaces;         /* the child is in them */
    /* What went wrong, for the parent: an error number, whether execve gave it, and for which program. */
    volatile int error;
    volatile int in_execve;
    volatile int program;
};

static void say(const char *text, size_t length) {
    while (length > 0) {
        ssize_t written = write(2, text, length);
        if (written <= 0)
            return; /* nowhere to say it */
        text += written;
        length -= (size_t)written;
    }
}

static void default_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            sigaction(number, &action, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int take_streams(const struct plan *plan) {
    for (int number = 0; number < 3; number++) {
        int source = plan->streams[number];
        if (source == number) {
            int flags = fcntl(source, F_GETFD);
            if (flags < 0 || fcntl(source, F_SETFD, flags & ~FD_CLOEXEC) < 0)
                return -1;
        } else if (dup2(source, number) < 0) {
            return -1;
        }
    }
    return 0;
}

static void set_oom_score(const struct plan *plan) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    ssize_t written = write(file, plan->oom_score, plan->oom_score_length);
    (void)written;
    close(file);
}

/* Whatever is not allowed is left: the names are a convenience. */
static void take_names(const struct plan *plan) {
    int named = sethostname(plan->node, (size_t)plan->node_length);
    (void)named;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        mount(plan->hosts_file, "/etc/hosts", NULL, MS_BIND, NULL);
}

static void bind_cpus(const struct plan *plan) {
    if (syscall(SYS_sched_setaffinity, 0, plan->cpus_size, plan->cpus) >= 0)
        return;
    static const char before[] = "slurmstepd: error: sched_setaffinity: ";
    const char *reason = strerror(errno);
    say(before, sizeof before - 1);
    say(reason, strlen(reason));
    say("\n", 1);
}

static void set_limits(const struct plan *plan) {
    for (Py_ssize_t place = 0; place < plan->limits_count; place++) {
        const struct limit *limit = &plan->limits[place];
        struct rlimit value;
        if (getrlimit(limit->number, &value) < 0)
            continue;
        if (value.rlim_max != RLIM_INFINITY && (limit->soft == RLIM_INFINITY || limit->soft > value.rlim_max))
            value.rlim_max = limit->soft;
        value.rlim_cur = limit->soft;
        if (setrlimit(limit->number, &value) < 0)
            say(limit->complaint, limit->length);
    }
}

static int become_user(const struct plan *plan) {
    if (syscall(SYS_setgroups, plan->groups_count, plan->groups) < 0)
        return -1;
    if (syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) < 0)
        return -1;
    if (syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) < 0)
        return -1;
    if (plan->uid != 0 && syscall(SYS_setuid, 0) == 0) {
        errno = EPERM; /* there is a way back to root */
        return -1;
    }
    return 0;
}

static void write_pid(struct plan *plan) {
    char digits[20];
    int count = 0;
    unsigned long pid = (unsigned long)syscall(SYS_getpid);
    do {
        digits[count++] = (char)('0' + pid % 10);
        pid /= 10;
    } while (pid > 0);
    char *end = plan->pid_text + strlen("SLURM_TASK_PID=");
    while (count > 0)
        *end++ = digits[--count];
    *end = '\0';
}

static void run_program(struct plan *plan) {
    int place = 0;
    if (plan->search)
        for (; plan->programs[place + 1] != NULL; place++) {
            struct stat found;
            const char *path = plan->programs[place];
            if (stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0)
                break;
        }
    execve(plan->programs[place], plan->argv, plan->env);
    plan->error = errno;
    plan->in_execve = 1;
    plan->program = place;
}

static void be_task(struct plan *plan) {
    default_signals();
    setsid();
    if (plan->terminal)
        ioctl(plan->streams[0], TIOCSCTTY, 0);
    if (take_streams(plan) < 0)
        goto failed;
    if (plan->oom_score != NULL)
        set_oom_score(plan);
    if (plan->namespaces)
        take_names(plan);
    if (plan->cpus != NULL)
        bind_cpus(plan);
    if (plan->niceness != 0) {
        errno = 0;
        if (nice(plan->niceness) == -1 && errno != 0)
            goto failed;
    }
    set_limits(plan);
    if (plan->switch_user && become_user(plan) < 0)
        goto failed;
    umask(plan->mask);
    write_pid(plan);
    run_program(plan);
    _exit(plan->error < 256 ? plan->error : 1);
failed:
    plan->error = errno;
    _exit(1);
}

#define STACK_BYTES (64 * 1024)

static int cloned_child(void *plan) {
    be_task(plan);
    return 1;
}

/* As vfork, in new namespaces; -1 where that is not allowed. A stack of its own, as clone(2) wants it. */
static pid_t clone_child(struct plan *plan, char *stack) {
    plan->namespaces = 1;
    pid_t pid = clone(cloned_child, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_NEWNS | CLONE_NEWUTS | SIGCHLD, plan);
    if (pid < 0)
        plan->namespaces = 0;
    return pid;
}

/* Alone in its frame: the child must not return through one that the parent still needs. */
static __attribute__((noinline)) pid_t spawn_child(struct plan *plan, char *stack) {
    pid_t pid = stack == NULL ? -1 : clone_child(plan, stack);
    if (pid >= 0)
        return pid;
    pid = vfork();
    if (pid == 0)
        be_task(plan);
    return pid;
}

/* -- from Python's objects to a plan */

static char **strings_of(PyObject *sequence, Py_ssize_t more) {
    Py_ssize_t count = PyTuple_GET_SIZE(sequence);
    char **strings = PyMem_Calloc((size_t)(count + more + 1), sizeof *strings);
    if (strings == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        char *text;
        /* Without a length, a NUL byte inside is a ValueError. */
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(sequence, place), &text, NULL) < 0) {
            PyMem_Free(strings);
            return NULL;
        }
        strings[place] = text;
    }
    return strings;
}

static int read_limits(PyObject *sequence, struct plan *plan) {
    plan->limits_count = PyTuple_GET_SIZE(sequence);
    plan->limits = PyMem_Calloc((size_t)plan->limits_count + 1, sizeof *plan->limits);
    if (plan->limits == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0; place < plan->limits_count; place++) {
        struct limit *limit = &plan->limits[place];
        long long soft;
        Py_ssize_t length;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sequence, place), "iLy#", &limit->number, &soft, &limit->complaint,
                              &length))
            return -1;
        limit->soft = soft < 0 ? RLIM_INFINITY : (rlim_t)soft;
        limit->length = (size_t)length;
    }
    return 0;
}

static int read_groups(PyObject *sequence, struct plan *plan) {
    plan->groups_count = (size_t)PyTuple_GET_SIZE(sequence);
    plan->groups = PyMem_Calloc(plan->groups_count + 1, sizeof *plan->groups);
    if (plan->groups == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t place = 0; place < plan->groups_count; place++) {
        unsigned long group = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(sequence, (Py_ssize_t)place));
        if (PyErr_Occurred())
            return -1;
        plan->groups[place] = (gid_t)group;
    }
    return 0;
}

static int read_cpus(PyObject *sequence, struct plan *plan) {
    Py_ssize_t count = PyTuple_GET_SIZE(sequence);
    long highest = -1;
    for (Py_ssize_t place = 0; place < count; place++) {
        long cpu = PyLong_AsLong(PyTuple_GET_ITEM(sequence, place));
        if (PyErr_Occurred())
            return -1;
        if (cpu < 0 || cpu > 65535) {
            PyErr_SetString(PyExc_ValueError, "no such CPU");
            return -1;
        }
        highest = cpu > highest ? cpu : highest;
    }
    if (count == 0)
        return 0;
    plan->cpus_size = CPU_ALLOC_SIZE(highest + 1);
    plan->cpus = PyMem_Calloc(1, plan->cpus_size);
    if (plan->cpus == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0; place < count; place++)
        CPU_SET_S((size_t)PyLong_AsLong(PyTuple_GET_ITEM(sequence, place)), plan->cpus_size, plan->cpus);
    return 0;
}

static PyObject *run_plan(struct plan *plan, PyObject *programs, PyObject *argv, PyObject *env) {
    plan->programs = strings_of(programs, 0);
    plan->argv = plan->programs == NULL ? NULL : strings_of(argv, 0);
    plan->env = plan->argv == NULL ? NULL : strings_of(env, 1);
    if (plan->env == NULL)
        return NULL;
    strcpy(plan->pid_text, "SLURM_TASK_PID=");
    plan->env[PyTuple_GET_SIZE(env)] = plan->pid_text;
    char *stack = NULL;
    if (plan->hosts_file[0] != '\0') {
        stack = PyMem_Malloc(STACK_BYTES);
        if (stack == NULL)
            return PyErr_NoMemory();
    }
    sigset_t every, before;
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, &before);
    pid_t pid = spawn_child(plan, stack);
    int problem = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    PyMem_Free(stack);
    if (pid < 0) {
        errno = problem;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return Py_BuildValue("iiii", (int)pid, plan->error, plan->in_execve, plan->program);
}

PyDoc_STRVAR(spawn_doc,
             "spawn(programs, search, argv, env, streams, terminal, oom_score, cpus, nice, limits, user, umask, hosts_file,\n      node)\n--\n\n"
             "Start a task; (pid, error number, whether execve gave it, which program). See stepd.tasks.spawn.\n\n"
             "Raises OSError if no process can be made, ValueError for a NUL byte.");

static PyObject *spawn(PyObject *module, PyObject *arguments) {
    (void)module;
    struct plan plan;
    memset(&plan, 0, sizeof plan);
    PyObject *programs, *argv, *env, *cpus, *limits, *user;
    PyObject *result = NULL;
    Py_ssize_t oom_score_length = 0;
    unsigned int mask;
    if (!PyArg_ParseTuple(arguments, "O!pO!O!(iii)pz#O!iO!OIss#", &PyTuple_Type, &programs, &plan.search, &PyTuple_Type,
                          &argv, &PyTuple_Type, &env, &plan.streams[0], &plan.streams[1], &plan.streams[2],
                          &plan.terminal, &plan.oom_score, &oom_score_length, &PyTuple_Type, &cpus, &plan.niceness,
                          &PyTuple_Type, &limits, &user, &mask, &plan.hosts_file, &plan.node, &plan.node_length))
        return NULL;
    plan.oom_score_length = (size_t)oom_score_length;
    plan.mask = (mode_t)mask;
    if (PyTuple_GET_SIZE(programs) == 0 || PyTuple_GET_SIZE(argv) == 0) {
        PyErr_SetString(PyExc_ValueError, "a task needs a program");
        return NULL;
    }
    int ready = read_limits(limits, &plan) == 0 && read_cpus(cpus, &plan) == 0;
    if (ready && user != Py_None) {
        PyObject *groups;
        plan.switch_user = 1;
        ready = PyArg_ParseTuple(user, "IIO!", &plan.uid, &plan.gid, &PyTuple_Type, &groups) &&
                read_groups(groups, &plan) == 0;
    }
    if (ready)
        result = run_plan(&plan, programs, argv, env);
    PyMem_Free(plan.programs);
    PyMem_Free(plan.argv);
    PyMem_Free(plan.env);
    PyMem_Free(plan.cpus);
    PyMem_Free(plan.limits);
    PyMem_Free(plan.groups);
    return result;
}

static PyMethodDef methods[] = {{"spawn", spawn, METH_VARARGS, spawn_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_spawn", "vfork and exec for tasks; see tasks.spawn.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__spawn(void) { return PyModule_Create(&definition); }
