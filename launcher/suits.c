/* Which calls suit a server.
 *
 * Its children are in a session of their own, without the caller's controlling terminal, and have descriptors 0 to 2
 * alone. So what runs programs of the user's at a terminal, or names other descriptors, runs in the caller's process.
 */

#include "launcher.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

/* salloc runs a command with job control; sattach may take the terminal over; the others are, or start, daemons. */
static const char *const DIRECT[] = {"salloc",   "sattach", "spritz",     "slurmctld",           "slurmd",
                                     "slurmdbd", "sackd",   "slurmrestd", "spritz-health-check", "spritz-operator", NULL};
/* Without a keyword these read line after line, with line editing. */
static const char *const INTERACTIVE[] = {"scontrol", "sacctmgr", "sreport", NULL};
/* Names that mean something else in another process. */
static const char *const OWN[] = {"/dev/fd", "/dev/std", "/dev/tty", "/proc/self", "/proc/thread-self", NULL};

static int is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names))
            return 1;
    return 0;
}

static int names_own(const char *text)
{
    if (!strstr(text, "/dev/") && !strstr(text, "/proc/"))
        return 0;
    for (const char *const *own = OWN; *own; own++)
        if (strstr(text, *own))
            return 1;
    return 0;
}

static int arguments_suit(const struct call *call)
{
    int words = 0;
    for (int i = 1; i < call->argc; i++) {
        const char *word = call->argv[i];
        words += word[0] != '-';
        /* --pty makes the caller's terminal raw; --export-file may be the number of a descriptor */
        if (!strncmp(word, "--pt", 4) || !strncmp(word, "--export-f", 10) || names_own(word))
            return 0;
    }
    return words || !is_one_of(call->name, INTERACTIVE);
}

/* Python's streams are UTF-8 in the server; where the caller's would be something else, Python must see to it. */
static int codeset_is_utf8(const char *locale)
{
    const char *dot;
    if (!locale || !*locale || !strcmp(locale, "C") || !strcmp(locale, "POSIX"))
        return 1;
    dot = strchr(locale, '.');
    return dot && (!strncasecmp(dot, ".utf-8", 6) || !strncasecmp(dot, ".utf8", 5));
}

static int environment_suits(const struct call *call)
{
    const char *all = NULL, *ctype = NULL, *lang = NULL;
    for (char **each = call->environ; *each; each++) {
        const char *entry = *each;
        switch (entry[0]) {
        case 'L':
            if (!strncmp(entry, "LC_ALL=", 7))
                all = entry + 7;
            else if (!strncmp(entry, "LC_CTYPE=", 9))
                ctype = entry + 9;
            else if (!strncmp(entry, "LANG=", 5))
                lang = entry + 5;
            break;
        case 'P':
            if (!strncmp(entry, "PYTHONIOENCODING=", 17) || !strncmp(entry, "PYTHONUTF8=", 11))
                return 0;
            break;
        case 'S':
            if (!strncmp(entry, "SPRITZ_NO_SERVER=", 17) && entry[17])
                return 0;
            if ((!strncmp(entry, "SBATCH_", 7) || !strncmp(entry, "SLURM_", 6)) && names_own(entry))
                return 0;
            break;
        }
    }
    return codeset_is_utf8(all && *all ? all : ctype && *ctype ? ctype : lang);
}

int suits_server(const struct call *call)
{
    if (getuid() != geteuid() || getgid() != getegid())
        return 0;
    return !is_one_of(call->name, DIRECT) && environment_suits(call) && arguments_suit(call);
}
