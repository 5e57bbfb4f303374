/* options.h -- the start, the command line and the end of every program.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli/cases.tsv.
 * Next: options.c.
 *
 * Options are "--name value" or "--name=value"; names cannot be abbreviated. Every
 * program also takes --help (-h) and --version, each of which overrides all other
 * arguments. Of an option that is given twice the last value counts. */
#ifndef KCP_OPTIONS_H
#define KCP_OPTIONS_H

#include <stddef.h>

enum option_kind {
    OPTION_TEXT,       /* const char *, not empty */
    OPTION_FLAG,       /* int, 1 if present; takes no value */
    OPTION_INT,        /* int, low to high */
    OPTION_WHOLE,      /* int64_t, low to high */
    OPTION_REAL,       /* double, finite, low <= x < high */
    OPTION_WORD        /* int (or an enum), index of the word in "a|b|c" */
};

struct option_row {
    const char *name;          /* "--ranks"; two rows may set the same member */
    enum option_kind kind;
    size_t at;                 /* offset of the member to set */
    const char *expects;       /* WORD: the words; INT, WHOLE: may be NULL */
    double low, high;
};

struct option_table {
    const char *program;       /* "kcp-run" */
    const struct option_row *row;
    int n;
    void (*help)(void);        /* prints the help to stdout */
};

/* Sets the members of the options that are given; other members are unchanged.
 * OPTIONS_DONE: help or version was printed. OPTIONS_BAD: one line in why, "--name:
 * found 'x', expected y". */
enum { OPTIONS_READ, OPTIONS_DONE, OPTIONS_BAD };
int options_read(const struct option_table *t, int argc, char **argv, void *into,
                 char *why, size_t n);

/* Prints --help from the rows: "  --name value" and the help, wrapped at column 84.
 * value NULL: the words that the row accepts. */
struct option_text { const char *value, *help; };
void options_print(const struct option_row *row, const struct option_text *text, int n);

/* Writes "WHAT: found 'FOUND', expected EXPECTED" to why, with unprintable characters
 * replaced. found NULL: ''. Returns OPTIONS_BAD. */
int options_refuse(char *why, size_t n, const char *what, const char *found,
                   const char *expected);
/* Prints "program: why" to stderr. Returns 2, the exit status of a bad command line. */
int options_say(const char *program, const char *why);

/* Call at the start of main: prints notices of the library to stderr. */
void print_notices(void);
/* Call at the end of main: flushes stdout and returns status. If stdout failed (a full
 * disk, a closed pipe), prints one line to stderr and returns status, or 2 if status is
 * 0. */
int finish_stdout(const char *program, int status);

#endif
