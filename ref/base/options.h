/* options.h -- parses the command line, and starts and ends programs.
 * Book: CONTRIBUTING.md.
 *
 * Options are "--name value" or "--name=value". Names cannot be abbreviated. Every
 * program also accepts --help (-h) and --version. If --help or --version is given,
 * other arguments are ignored. If an option is given twice, the last value counts. */
#pragma once

#include <stddef.h>

enum option_kind {
    OPTION_TEXT,       /* const char *, not empty */
    OPTION_MAYBE,      /* const char *, "" if no value follows the option */
    OPTION_FLAG,       /* int, 1 if the option is given; has no value */
    OPTION_INT,        /* int, low to high */
    OPTION_WHOLE,      /* int64_t, low to high */
    OPTION_REAL,       /* double, finite, low <= x < high */
    OPTION_WORD        /* int (or an enum), index of the word in "a|b|c" */
};

struct option_row {
    const char *name;          /* "--ranks"; two options may set one member */
    enum option_kind kind;
    size_t at;                 /* offset of the member to set */
    const char *expects;       /* text of the accepted values; NULL: `low` to `high` */
    double low, high;
    const char *value, *help;  /* in --help; if value is NULL, prints `expects` */
};

struct option_table {
    const char *program;       /* "kcp-run" */
    const struct option_row *row;
    int n;
    void (*help)(const struct option_table *t);    /* prints the help to stdout */
};

/* For each option in argv, sets its member of *into. Other members do not change.
 * Returns OPTIONS_DONE if help or version was printed. On an error, returns OPTIONS_BAD
 * and writes one line to `why`, "--name: found 'x', expected y". */
enum { OPTIONS_READ, OPTIONS_DONE, OPTIONS_BAD };
int options_read(const struct option_table *t, int argc, char **argv, void *into,
                 char *why, size_t n);

/* Prints each option's line of --help: " --name value" and the help, to column 84. */
void options_print(const struct option_table *t);

/* Writes "WHAT: found 'FOUND', expected EXPECTED" to `why`. Replaces unprintable
 * characters. If `found` is NULL, FOUND is empty. Returns OPTIONS_BAD. */
int options_refuse(char *why, size_t n, const char *what, const char *found,
                   const char *expected);
/* Prints "program: why" to stderr. Returns 2, the exit status of a bad command line. */
int options_say(const char *program, const char *why);

/* Prints the library's notices to stderr from now on. Call this at the start of
 * main. */
void print_notices(void);
/* Flushes stdout and returns `status`. Call this at the end of main. If stdout failed
 * (a full disk, a closed pipe), prints one line to stderr and does not return 0. */
int finish_stdout(const char *program, int status);
