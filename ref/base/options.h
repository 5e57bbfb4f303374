/* options.h -- a command line read by a table: one way for every program of the tree.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/fuzz/options.c, tests/cli/run_cli.sh.
 * Next: options.c.
 *
 * "--name value" or "--name=value"; nothing is guessed, and no name is shortened. Every
 * program also takes --help and --version, and either wins over all other words.
 */
#ifndef KCP_OPTIONS_H
#define KCP_OPTIONS_H

#include <stddef.h>

enum option_kind {
    OPTION_TEXT,       /* const char *, not empty */
    OPTION_FLAG,       /* int, 1 when it is there; takes no value */
    OPTION_INT,        /* int, low to high */
    OPTION_WHOLE,      /* int64_t, low to high */
    OPTION_REAL,       /* double, finite, low to below high */
    OPTION_WORD        /* int (or an enum), the place of the word in "a|b|c" */
};

struct option_row {
    const char *name;          /* "--ranks"; two rows may share what they set */
    enum option_kind kind;
    size_t at;                 /* offsetof in the struct that is filled */
    const char *expects;       /* WORD: the words; INT, WHOLE: NULL for the range */
    double low, high;
};

struct option_table {
    const char *program;       /* "kcp-run" */
    const struct option_row *row;
    int n;
    int once;                  /* given twice it is refused; else the last counts */
    void (*help)(void);        /* on stdout */
    int h;                     /* -h is the same */
};

/* What is not named stays as it was in *into. OPTIONS_DONE: help or the version was
 * printed, and there is nothing to do. OPTIONS_BAD: one line in why, "--name: found
 * 'x', expected y". */
enum { OPTIONS_READ, OPTIONS_DONE, OPTIONS_BAD };
int options_read(const struct option_table *t, int argc, char **argv, void *into,
                 char *why, size_t n);

/* --help from the rows: "  --name value" and the help, wrapped at column 84. value
 * NULL: the row's words. */
struct option_text { const char *value, *help; };
void options_print(const struct option_row *row, const struct option_text *text, int n);

/* why <- "what: found 'found', expected expected" in printable letters; OPTIONS_BAD.
 * found NULL: ''. */
int options_refuse(char *why, size_t n, const char *what, const char *found,
                   const char *expected);
/* "program: why" on stderr; returns 2, the exit status of a bad command line. */
int options_say(const char *program, const char *why);

#endif
