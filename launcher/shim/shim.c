/* A command's own file: it executes the launcher beside it, DIRECTORY/spritz-launcher, under the command's name.
 *
 * A wheel has no links, and each command as a copy of the launcher is 62 KiB with musl and 0.7 MiB with glibc. This is less
 * than 1 KiB, since it does without a C library: two system calls at most (docs/decisions/0226).
 *
 * The launcher gets the path of this file as argv[0] (launcher.c). A symbolic link to this file, from another directory,
 * is resolved by the kernel's link to the running program. Where this does not compile, setup.py installs copies of the
 * launcher.
 */

#include <elf.h>
#include <limits.h>
#include <sys/syscall.h>

#define LAUNCHER "spritz-launcher"
#define AT_CWD (-100L)

/* Calls begin(initial stack) with an aligned stack. */
#if defined __x86_64__
__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall begin\n");
#elif defined __aarch64__
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl begin\n");
#else
#error "no system call for this processor"
#endif

static long system_call(long number, long first, long second, long third, long fourth)
{
#if defined __x86_64__
    long result;
    register long last __asm__("r10") = fourth;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(first), "S"(second), "d"(third), "r"(last)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long call __asm__("x8") = number;
    register long result __asm__("x0") = first;
    register long x1 __asm__("x1") = second;
    register long x2 __asm__("x2") = third;
    register long x3 __asm__("x3") = fourth;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(call), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return result;
#endif
}

/* The launcher beside `file`, in place of the last component; returns if it cannot be executed. */
static void execute_beside(char *file, unsigned long *arguments, unsigned long *environment)
{
    static const char name[] = LAUNCHER;
    char *last = file;

    for (char *at = file; *at; at++)
        if (*at == '/')
            last = at + 1;
    for (unsigned at = 0; at < sizeof name; at++)
        ((volatile char *)last)[at] = name[at];
    system_call(__NR_execve, (long)file, (long)arguments, (long)environment, 0);
}

/* The stack that the kernel leaves: argc, argv, 0, environment, 0, pairs of the auxiliary vector. */
__attribute__((noreturn, used)) void begin(unsigned long *stack)
{
    char path[PATH_MAX + sizeof LAUNCHER];
    unsigned long *environment = stack + stack[0] + 2, *pair = environment;
    const char *executed = 0;
    long length = 0;

    while (*pair)
        pair++;
    for (pair++; pair[0] != AT_NULL; pair += 2)
        if (pair[0] == AT_EXECFN)
            executed = (const char *)pair[1];
    /* Without arguments there is no place for the name; Linux has given one since 5.18. */
    if (executed && stack[0]) {
        stack[1] = (unsigned long)executed;
        while (length < PATH_MAX && (((volatile char *)path)[length] = executed[length]))
            length++;
        if (length < PATH_MAX)
            execute_beside(path, stack + 1, environment);
        length = system_call(__NR_readlinkat, AT_CWD, (long)"/proc/self/exe", (long)path, PATH_MAX);
        if (length > 0) {
            path[length] = 0;
            execute_beside(path, stack + 1, environment);
        }
    }
    system_call(__NR_write, 2, (long)LAUNCHER ": not found\n", sizeof LAUNCHER ": not found\n" - 1, 0);
    for (;;)
        system_call(__NR_exit, 127, 0, 0, 0);
}
