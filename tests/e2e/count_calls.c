/* count_calls COMMAND...: how many system calls it makes until it first sends something over a socket, or ends.
 *
 * Prints the number on standard error, and lets the command go on to its end. 99: tracing is refused here.
 * Source: ptrace(2) PTRACE_GET_SYSCALL_INFO.
 */

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)

int main(int argc, char **argv)
{
    long count = 0;
    int status, counting = 0;
    pid_t child;

    if (argc < 2 || (child = fork()) < 0)
        return 99;
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(99);
        raise(SIGSTOP);
        execv(argv[1], argv + 1);
        _exit(98);
    }
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        return 99;
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)OPTIONS) < 0)
        return 99;
    for (;;) {
        struct __ptrace_syscall_info info;
        if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) < 0 || waitpid(child, &status, 0) != child)
            return 99;
        if (!WIFSTOPPED(status))
            break;
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8))
            counting = 1;
        if (!counting || WSTOPSIG(status) != (SIGTRAP | 0x80))
            continue;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info) <= 0)
            return 99;
        if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
            continue;
        if (info.entry.nr == SYS_sendto || info.entry.nr == SYS_sendmsg) {
            ptrace(PTRACE_DETACH, child, NULL, NULL);
            if (waitpid(child, &status, 0) != child)
                return 99;
            break;
        }
        count++;
    }
    fprintf(stderr, "calls=%ld\n", count);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}
