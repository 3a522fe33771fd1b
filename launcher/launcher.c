/* One program for every command of Spritz: it hands its call to a warm command server, which has Python and the
 * command's modules loaded already, and otherwise executes Python as an ordinary entry point does.
 *
 * Map: suits.c    which calls a server can do as well as a process of the caller's own
 *      place.c    where the Python side is, and where the server's socket is
 *      serve.c    a call through the server: connect, wait, forward signals, end as the command did
 *      request.c  everything that a process has around it, as one message
 *      direct.c   executing Python; starting a server for the next call
 *      shim       what is installed under each command's name: it executes this program
 *
 * Whatever is not as expected leads to run_directly, until the server has emptied the call's box: from then on the
 * command may have begun, and is never run a second time.
 *
 * See docs/decisions/0168.
 */

#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The installed file; shim.c has the same name. */
#define LAUNCHER "spritz-launcher"

extern char **environ;

static const char *last_component(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Which of 0, 1 and 2 are open. What is closed gets a place-holder that vanishes at exec: no descriptor of the
 * launcher's own may take its number, and the command must find it closed. */
static unsigned guard_standard(void)
{
    unsigned opened = 0;
    for (int number = 0; number < 3; number++) {
        if (fcntl(number, F_GETFD) >= 0)
            opened |= 1U << number;
        else if (open("/", O_PATH | O_CLOEXEC) < 0)
            break;
    }
    return opened;
}

int main(int argc, char **argv)
{
    struct call call = {.argc = argc, .argv = argv, .environ = environ};
    static struct place place;

    call.opened = guard_standard();
    /* What was executed; argv[0] is only what the caller says of it, and has no directory when found on PATH. Under its
     * own name, a command's shim executed it, and put its own path there. */
    call.path = (const char *)getauxval(AT_EXECFN);
    if (!call.path || !*call.path || !strcmp(last_component(call.path), LAUNCHER))
        call.path = argc ? argv[0] : "";
    call.name = last_component(call.path);
    /* Without a command's name it has nothing to launch, and says that it runs here: setup.py asks. */
    if (!strcmp(call.name, LAUNCHER) || !strcmp(call.name, "launcher"))
        return write(1, PROTOCOL, sizeof PROTOCOL - 1) < 0;
    /* What ps and pkill call it. */
    prctl(PR_SET_NAME, call.name);
    if (find_script(&call, &place) < 0) {
        dprintf(2, "%s: error: %s: %s\n", call.name, place.script, strerror(errno));
        return 127;
    }
    if (argc && suits_server(&call) && find_place(&call, &place) == 0) {
        switch (serve(&call, &place)) {
        case OUTCOME_NOBODY:
            start_server(&call, &place, 0);
            break;
        case OUTCOME_HUNG:
            start_server(&call, &place, 1);
            break;
        case OUTCOME_DECLINED:
            break;
        }
    }
    run_directly(&call, &place);
}
