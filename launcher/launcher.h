/* The launcher of Spritz's commands: what its parts know of each other. See launcher.c for the map. */

#ifndef SPRITZ_LAUNCHER_H
#define SPRITZ_LAUNCHER_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* Changes with anything that launcher and server must agree on. */
#define PROTOCOL "SPRITZ5\n"
/* So long the server may take to begin the command. After that there is no limit. */
#ifndef PATIENCE_MS
#define PATIENCE_MS 3000
#endif

/* How this call was made. */
struct call {
    const char *path; /* the file that was executed, as the kernel was told */
    const char *name; /* its last component: the command */
    int argc;
    char **argv;
    char **environ;
    unsigned opened; /* bit n: descriptor n is open, of 0 to 2 */
};

/* Where the command's other parts are. */
struct place {
    char interpreter[PATH_MAX]; /* "" where it is not known: then `script` is executed */
    char script[PATH_MAX];      /* the Python entry point behind all commands, in the launcher's directory */
    char stamp[96];             /* of that file; another one after each installation */
    char base[32];              /* name of the socket: installation, namespaces and protocol */
    char of_job[32];            /* the same of a batch script's own server; "" outside of one */
    char python_path[4096];     /* PYTHONPATH where Spritz itself is found there, else "" */
    char path[112];             /* of the directory that holds the user's socket; "" where it is too long */
    int directory;              /* that directory */
    int connection;             /* a socket that is not connected yet */
};

/* What became of an attempt to let the server do it. The status is meant for OUTCOME_DONE alone. */
enum outcome { OUTCOME_NOBODY, OUTCOME_HUNG, OUTCOME_DECLINED };

/* place.c */
int find_script(const struct call *call, struct place *place);
int find_place(const struct call *call, struct place *place);
void find_interpreter(struct place *place);

/* suits.c */
int suits_server(const struct call *call);

/* request.c */
struct message {
    char *data;
    size_t size;
};
int pack(const struct call *call, struct message *message);
int open_directory(void);
int put_into_box(int end, const struct call *call, long long deadline);
int send_message(int connection, const struct message *message, int box, int directory, long long deadline);

/* serve.c: returns only when the command has not begun, and never will in the server */
enum outcome serve(const struct call *call, const struct place *place);
long long now_ms(void);

/* direct.c */
void start_server(const struct call *call, const struct place *place, int replace);
void run_directly(const struct call *call, const struct place *place) __attribute__((noreturn));

#endif
