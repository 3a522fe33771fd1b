/* The few functions of the C library that the launcher needs, without the library (compiled in with -DLEAN).
 *
 * A static program with glibc meets some 25 page faults before its main: 0.2 ms of every call, as much as all that the
 * launcher does. Declarations are the system's own headers'; where the kernel is another one, or the compiler does not
 * like this, setup.py links the library as usual.
 *
 * Source: syscalls(2), vdso(7), getauxval(3); the psABIs of x86-64 and AArch64 for the entry point.
 */

#ifdef LEAN

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char **environ;
static unsigned long *auxiliary;
static int error_number;

int *__errno_location(void)
{
    return &error_number;
}

/* -- entry */

extern int main(int argc, char **argv);

__attribute__((used, noreturn)) static void begin(unsigned long *stack)
{
    char **argv = (char **)(stack + 1);
    environ = argv + *stack + 1;
    auxiliary = (unsigned long *)environ;
    while (*auxiliary++)
        ;
    _exit(main((int)*stack, argv));
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long fourth __asm__("r10") = d, fifth __asm__("r8") = e, sixth __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}

#define RESTORER 0x04000000UL
void restore(void);
__asm__(".globl restore\nrestore:\n mov $15, %eax\n syscall\n"); /* rt_sigreturn */
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x30, #0\n mov x0, sp\n bl begin\n");

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long which __asm__("x8") = number;
    register long first __asm__("x0") = a, second __asm__("x1") = b, third __asm__("x2") = c;
    register long fourth __asm__("x3") = d, fifth __asm__("x4") = e, sixth __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(first)
                     : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "memory");
    return first;
}

#define RESTORER 0UL
#define restore ((void (*)(void))0)
#else
#error "no entry point for this processor: the C library has one"
#endif

static long told(long result)
{
    if (result >= 0 || result < -4095)
        return result;
    error_number = (int)-result;
    return -1;
}

#define CALL(number, ...) told(CALL_(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0))
#define CALL_(number, a, b, c, d, e, f, ...)                                                                           \
    call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* -- system calls */

void _exit(int status)
{
    for (;;)
        CALL(SYS_exit_group, status);
}

int openat(int directory, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    return (int)CALL(SYS_openat, directory, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    return (int)CALL(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fcntl(int descriptor, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long);
    va_end(rest);
    return (int)CALL(SYS_fcntl, descriptor, command, argument);
}

long syscall(long number, ...)
{
    long words[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        words[i] = va_arg(rest, long);
    va_end(rest);
    return told(call(number, words[0], words[1], words[2], words[3], words[4], words[5]));
}

int close(int descriptor) { return (int)CALL(SYS_close, descriptor); }
ssize_t read(int descriptor, void *data, size_t size) { return CALL(SYS_read, descriptor, data, size); }
ssize_t write(int descriptor, const void *data, size_t size) { return CALL(SYS_write, descriptor, data, size); }
int ftruncate(int descriptor, off_t size) { return (int)CALL(SYS_ftruncate, descriptor, size); }

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t at)
{
    return CALL(SYS_pwrite64, descriptor, data, size, at);
}
int access(const char *path, int mode) { return (int)CALL(SYS_faccessat, AT_FDCWD, path, mode); }
int uname(struct utsname *host) { return (int)CALL(SYS_uname, host); }
int unlink(const char *path) { return (int)CALL(SYS_unlinkat, AT_FDCWD, path, 0); }
int mkdirat(int directory, const char *path, mode_t mode) { return (int)CALL(SYS_mkdirat, directory, path, mode); }
ssize_t readlink(const char *path, char *data, size_t size)
{
    return CALL(SYS_readlinkat, AT_FDCWD, path, data, size);
}
int stat(const char *path, struct stat *info) { return (int)CALL(SYS_newfstatat, AT_FDCWD, path, info, 0); }
int lstat(const char *path, struct stat *info)
{
    return (int)CALL(SYS_newfstatat, AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);
}
int fstat(int descriptor, struct stat *info) { return (int)CALL(SYS_fstat, descriptor, info); }
int flock(int descriptor, int operation) { return (int)CALL(SYS_flock, descriptor, operation); }
int dup2(int from, int to) { return from == to ? to : (int)CALL(SYS_dup3, from, to, 0); }
mode_t umask(mode_t mask) { return (mode_t)CALL(SYS_umask, mask); }
pid_t getpid(void) { return (pid_t)CALL(SYS_getpid, 0); }
uid_t getuid(void) { return (uid_t)CALL(SYS_getuid, 0); }
uid_t geteuid(void) { return (uid_t)CALL(SYS_geteuid, 0); }
gid_t getgid(void) { return (gid_t)CALL(SYS_getgid, 0); }
gid_t getegid(void) { return (gid_t)CALL(SYS_getegid, 0); }
pid_t setsid(void) { return (pid_t)CALL(SYS_setsid, 0); }
pid_t getsid(pid_t pid) { return (pid_t)CALL(SYS_getsid, pid); }
pid_t fork(void) { return (pid_t)CALL(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
pid_t waitpid(pid_t pid, int *status, int flags) { return (pid_t)CALL(SYS_wait4, pid, status, flags, 0); }
int execve(const char *path, char *const argv[], char *const environment[])
{
    return (int)CALL(SYS_execve, path, argv, environment);
}
int kill(pid_t pid, int number) { return (int)CALL(SYS_kill, pid, number); }
int raise(int number) { return kill(getpid(), number); }
int socket(int domain, int type, int protocol) { return (int)CALL(SYS_socket, domain, type, protocol); }
int connect(int descriptor, const struct sockaddr *address, socklen_t size)
{
    return (int)CALL(SYS_connect, descriptor, address, size);
}
int getsockopt(int descriptor, int level, int name, void *value, socklen_t *size)
{
    return (int)CALL(SYS_getsockopt, descriptor, level, name, value, size);
}
ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags)
{
    return CALL(SYS_sendmsg, descriptor, message, flags);
}
ssize_t recv(int descriptor, void *data, size_t size, int flags)
{
    return CALL(SYS_recvfrom, descriptor, data, size, flags, 0, 0);
}
int poll(struct pollfd *descriptors, nfds_t count, int milliseconds)
{
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    return (int)CALL(SYS_ppoll, descriptors, count, milliseconds < 0 ? NULL : &limit, NULL, 8);
}
int socketpair(int domain, int type, int protocol, int pair[2])
{
    return (int)CALL(SYS_socketpair, domain, type, protocol, pair);
}
int signalfd(int descriptor, const sigset_t *set, int flags)
{
    return (int)CALL(SYS_signalfd4, descriptor, set, 8, flags);
}
int getpriority(__priority_which_t which, id_t who)
{
    long got = CALL(SYS_getpriority, which, who);
    return got < 0 ? -1 : 20 - (int)got;
}
int getrlimit(__rlimit_resource_t which, struct rlimit *limit)
{
    return (int)CALL(SYS_prlimit64, 0, which, NULL, limit);
}
int setrlimit(__rlimit_resource_t which, const struct rlimit *limit)
{
    return (int)CALL(SYS_prlimit64, 0, which, limit, NULL);
}
int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    return (int)CALL(SYS_sched_setaffinity, pid, size, set);
}
int clock_gettime(clockid_t which, struct timespec *now) { return (int)CALL(SYS_clock_gettime, which, now); }
time_t time(time_t *unused)
{
    struct timespec now;
    (void)unused;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

/* -- signals: the kernel's sets have 64 bits, and stand first in the library's */

struct kernel_action {
    void *handler;
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static uint64_t *bits(const sigset_t *set) { return (uint64_t *)set; }
int sigemptyset(sigset_t *set) { return *bits(set) = 0, 0; }
int sigfillset(sigset_t *set) { return *bits(set) = ~0ULL, 0; }
int sigaddset(sigset_t *set, int number) { return *bits(set) |= 1ULL << (number - 1), 0; }
int sigismember(const sigset_t *set, int number) { return (int)(*bits(set) >> (number - 1) & 1); }
int sigprocmask(int how, const sigset_t *set, sigset_t *before)
{
    return (int)CALL(SYS_rt_sigprocmask, how, set, before, 8);
}
int sigaction(int number, const struct sigaction *wanted, struct sigaction *before)
{
    struct kernel_action new, old;
    if (wanted) {
        new.handler = (void *)wanted->sa_sigaction;
        new.flags = (unsigned long)(unsigned)wanted->sa_flags | RESTORER;
        new.restorer = restore;
        new.mask = *bits(&wanted->sa_mask);
    }
    long result = CALL(SYS_rt_sigaction, number, wanted ? &new : NULL, before ? &old : NULL, 8);
    if (before && result == 0)
        before->sa_handler = (__sighandler_t)old.handler;
    return (int)result;
}
__sighandler_t signal(int number, __sighandler_t handler)
{
    struct sigaction action;
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(number, &action, NULL) < 0 ? SIG_ERR : SIG_DFL;
}

/* -- memory and text */

void *memset(void *to, int value, size_t size)
{
    for (unsigned char *at = to; size--;)
        *at++ = (unsigned char)value;
    return to;
}
void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    unsigned char *at = to;
    for (const unsigned char *next = from; size--;)
        *at++ = *next++;
    return to;
}
size_t strlen(const char *text)
{
    size_t size = 0;
    while (text[size])
        size++;
    return size;
}
static int lower(int letter) { return letter >= 'A' && letter <= 'Z' ? letter + 32 : letter; }
int strncmp(const char *one, const char *other, size_t size)
{
    for (; size && *one && *one == *other; one++, other++)
        size--;
    return size ? (unsigned char)*one - (unsigned char)*other : 0;
}
int strcmp(const char *one, const char *other) { return strncmp(one, other, ~0UL); }
int strncasecmp(const char *one, const char *other, size_t size)
{
    for (; size && *one && lower(*one) == lower(*other); one++, other++)
        size--;
    return size ? lower(*one) - lower(*other) : 0;
}
char *strcpy(char *restrict to, const char *restrict from) { return memcpy(to, from, strlen(from) + 1); }
char *strcat(char *restrict to, const char *restrict from) { return strcpy(to + strlen(to), from), to; }
char *strchr(const char *text, int letter)
{
    for (;; text++)
        if (*text == (char)letter)
            return (char *)text;
        else if (!*text)
            return NULL;
}
char *strrchr(const char *text, int letter)
{
    const char *found = NULL;
    for (; (text = strchr(text, letter)); text++)
        found = text;
    return (char *)found;
}
char *strstr(const char *text, const char *wanted)
{
    size_t size = strlen(wanted);
    for (; *text; text++)
        if (!strncmp(text, wanted, size))
            return (char *)text;
    return size ? NULL : (char *)text;
}
size_t strcspn(const char *text, const char *ends)
{
    size_t size = 0;
    while (text[size] && !strchr(ends, text[size]))
        size++;
    return size;
}
char *getenv(const char *name)
{
    size_t size = strlen(name);
    for (char **entry = environ; *entry; entry++)
        if (!strncmp(*entry, name, size) && (*entry)[size] == '=')
            return *entry + size + 1;
    return NULL;
}
unsigned long getauxval(unsigned long wanted)
{
    for (const unsigned long *at = auxiliary; at[0] != AT_NULL; at += 2)
        if (at[0] == wanted)
            return at[1];
    return 0;
}

/* What is allocated stays until the end, which is near. */
void *malloc(size_t size)
{
    long found = CALL(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found == -1 ? NULL : (void *)found;
}
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void free(void *unused) { (void)unused; }

/* The conversions that the launcher uses: %s, %.*s, %d, and %x and %u with l and ll and a width with zeros. */
static int format(char *to, size_t room, const char *shape, va_list rest)
{
    size_t size = 0;
    for (; *shape; shape++) {
        char digits[24];
        const char *text = shape;
        int length = 1, width = 0, longs = 0;
        if (*shape == '%') {
            int most = 0x7fffffff;
            if (*++shape == '.') {
                most = va_arg(rest, int);
                shape += 2;
            }
            for (; *shape >= '0' && *shape <= '9'; shape++)
                width = 10 * width + *shape - '0';
            for (; *shape == 'l'; shape++)
                longs++;
            if (*shape == 's') {
                text = va_arg(rest, const char *);
                for (length = 0; length < most && text[length]; length++)
                    ;
            } else {
                unsigned long base = *shape == 'x' ? 16 : 10;
                long given = longs ? va_arg(rest, long) : va_arg(rest, int);
                unsigned long number = (unsigned long)given;
                int negative = *shape == 'd' && given < 0;
                char *at = digits + sizeof digits;
                if (negative)
                    number = -number;
                do
                    *--at = "0123456789abcdef"[number % base];
                while (number /= base);
                while (digits + sizeof digits - at < width)
                    *--at = '0';
                if (negative)
                    *--at = '-';
                text = at;
                length = (int)(digits + sizeof digits - at);
            }
        }
        for (; length--; size++, text++)
            if (size + 1 < room)
                to[size] = *text;
    }
    if (room)
        to[size < room ? size : room - 1] = 0;
    return (int)size;
}
int snprintf(char *restrict to, size_t room, const char *restrict shape, ...)
{
    va_list rest;
    va_start(rest, shape);
    int size = format(to, room, shape, rest);
    va_end(rest);
    return size;
}
int asprintf(char **restrict to, const char *restrict shape, ...)
{
    va_list rest;
    va_start(rest, shape);
    int size = format(NULL, 0, shape, rest);
    va_end(rest);
    if (!(*to = malloc((size_t)size + 1)))
        return -1;
    va_start(rest, shape);
    format(*to, (size_t)size + 1, shape, rest);
    va_end(rest);
    return size;
}
int dprintf(int descriptor, const char *restrict shape, ...)
{
    char text[8192];
    va_list rest;
    va_start(rest, shape);
    int size = format(text, sizeof text, shape, rest);
    va_end(rest);
    return (int)write(descriptor, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
}
char *strerror(int number)
{
    static char other[32];
    switch (number) {
    case ENOENT: return "No such file or directory";
    case EACCES: return "Permission denied";
    case ENOEXEC: return "Exec format error";
    case ENOMEM: return "Cannot allocate memory";
    case E2BIG: return "Argument list too long";
    case ENOTDIR: return "Not a directory";
    case EMFILE: return "Too many open files";
    case ELOOP: return "Too many levels of symbolic links";
    }
    snprintf(other, sizeof other, "Unknown error %d", number);
    return other;
}

#endif
