/* options.h -- reads a command line by a table; used by every program of the tree.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli/generated.sh, cases.tsv.
 * Next: options.c.
 *
 * "--name value" or "--name=value"; names cannot be abbreviated. Every program also
 * takes --help and --version, and either overrides all other arguments.
 */
#ifndef KCP_OPTIONS_H
#define KCP_OPTIONS_H

#include <stddef.h>

enum option_kind {
    OPTION_TEXT,       /* const char *, not empty */
    OPTION_FLAG,       /* int, 1 if present; takes no value */
    OPTION_INT,        /* int, low to high */
    OPTION_WHOLE,      /* int64_t, low to high */
    OPTION_REAL,       /* double, finite, low to below high */
    OPTION_WORD        /* int (or an enum), index of the word in "a|b|c" */
};

struct option_row {
    const char *name;          /* "--ranks"; two rows may set the same member */
    enum option_kind kind;
    size_t at;                 /* offsetof the member that it sets */
    const char *expects;       /* WORD: the words; INT, WHOLE: NULL for the range */
    double low, high;
};

struct option_table {
    const char *program;       /* "kcp-run" */
    const struct option_row *row;
    int n;
    int once;                  /* 1: a repeated option is an error */
    void (*help)(void);        /* prints the help to stdout */
    int h;                     /* 1: -h is --help */
};

/* Sets the members of the options that are given; others are unchanged. OPTIONS_DONE:
 * help or version was printed. OPTIONS_BAD: one line in why, "--name: found 'x',
 * expected y". */
enum { OPTIONS_READ, OPTIONS_DONE, OPTIONS_BAD };
int options_read(const struct option_table *t, int argc, char **argv, void *into,
                 char *why, size_t n);

/* Prints --help from the rows: "  --name value" and the help, wrapped at column 84.
 * value NULL: the row's words. */
struct option_text { const char *value, *help; };
void options_print(const struct option_row *row, const struct option_text *text, int n);

/* why <- "what: found 'found', expected expected", unprintable characters replaced.
 * Returns OPTIONS_BAD. found NULL: ''. */
int options_refuse(char *why, size_t n, const char *what, const char *found,
                   const char *expected);
/* "program: why" on stderr; returns 2, the exit status of a bad command line. */
int options_say(const char *program, const char *why);

#endif
