/* options.c -- parses the command line, and starts and ends programs.
 * Book: CONTRIBUTING.md. */
#include "options.h"
#include "kcp.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_notice(const char *line) { fprintf(stderr, "kcp: %s\n", line); }

void print_notices(void) { kcp_notices(print_notice); }

int finish_stdout(const char *program, int status)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout)) return status;
    fprintf(stderr, "%s: cannot write to stdout: %s\n", program,
            errno ? strerror(errno) : "error");
    return status ? status : 2;
}

int options_refuse(char *why, size_t n, const char *what, const char *found,
                   const char *expected)
{
    if (n == 0) return OPTIONS_BAD;
    snprintf(why, n, "%.80s: found '%.80s', expected %s", what, found ? found : "",
             expected);
    for (char *c = why; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) *c = '?';
    return OPTIONS_BAD;
}

int options_say(const char *program, const char *why)
{
    fprintf(stderr, "%s: %s\n", program, why);
    return 2;
}

/* Writes to `s` the values that an option accepts, for messages. */
static const char *expected(const struct option_row *row, char *s, size_t n)
{
    if (row->expects) snprintf(s, n, "%s", row->expects);
    else snprintf(s, n, "a whole number from %.0f to %.0f", row->low, row->high);
    return s;
}

/* Returns the index of `word` in "a|b|c", or -1 if the list lacks `word`. */
static int place_of(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (int i = 0; ; i++) {
        const size_t m = strcspn(words, "|");
        if (m == n && memcmp(words, word, n) == 0) return i;
        if (!words[m]) return -1;
        words += m + 1;
    }
}

static int read_whole(const char *s, const struct option_row *row, int64_t *to)
{
    char *end;
    const char *digits = s + (*s == '-');
    errno = 0;
    const long long i = strtoll(s, &end, 10);
    const double x = (double)i;
    if (!isdigit((unsigned char)*digits) || *end || errno || x < row->low ||
        x > row->high)
        return -1;
    *to = i;
    return 0;
}

static int read_real(const char *s, const struct option_row *row, double *to)
{
    char *end;
    const double x = strtod(s, &end);
    if (!*s || isspace((unsigned char)*s) || *end || !isfinite(x) || x < row->low ||
        x >= row->high)
        return -1;
    *to = x;
    return 0;
}

/* Sets the option's member to `value`. Returns -1 if the option rejects the value. */
static int set(void *into, const struct option_row *row, const char *value)
{
    void *at = (char *)into + row->at;
    int64_t whole = 1;
    double real = 0;
    int bad = 0;
    if (row->kind == OPTION_TEXT) bad = !*value;
    else if (row->kind == OPTION_REAL) bad = read_real(value, row, &real);
    else if (row->kind == OPTION_WORD) {
        whole = place_of(row->expects, value);
        bad = whole < 0;
    } else if (row->kind != OPTION_FLAG && row->kind != OPTION_MAYBE)
        bad = read_whole(value, row, &whole);
    const int word = (int)whole;
    if (bad) return -1;
    if (row->kind == OPTION_TEXT || row->kind == OPTION_MAYBE)
        memcpy(at, &value, sizeof value);
    else if (row->kind == OPTION_REAL) memcpy(at, &real, sizeof real);
    else if (row->kind == OPTION_WHOLE) memcpy(at, &whole, sizeof whole);
    else memcpy(at, &word, sizeof word);
    return 0;
}

static const struct option_row *row_of(const struct option_table *t, const char *arg,
                                       size_t n)
{
    for (int i = 0; i < t->n; i++)
        if (strlen(t->row[i].name) == n && memcmp(t->row[i].name, arg, n) == 0)
            return &t->row[i];
    return NULL;
}

/* If --help, -h or --version is given at any position, prints the help or the version
 * and returns 1. */
static int print_help(const struct option_table *t, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const int help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
        if (!help && strcmp(argv[i], "--version")) continue;
        if (help) t->help(t);
        else
            printf("%s %s\n", t->program, kcp_version());
        return 1;
    }
    return 0;
}

/* Returns the value of option argv[*i]: the text after '=', or the next argument. Sets
 * *none to 1 if the next argument is missing or begins with "--". */
static const char *value_of(int argc, char **argv, int *i, int *none)
{
    const char *equals = strchr(argv[*i], '=');
    *none = 0;
    if (equals) return equals + 1;
    *i += 1;
    *none = *i == argc || strncmp(argv[*i], "--", 2) == 0;
    return *i == argc ? "" : argv[*i];
}

int options_read(const struct option_table *t, int argc, char **argv, void *into,
                 char *why, size_t n)
{
    char words[200];
    if (print_help(t, argc, argv)) return OPTIONS_DONE;
    for (int i = 1; i < argc; i++) {
        const struct option_row *row = row_of(t, argv[i], strcspn(argv[i], "="));
        if (!row)
            return options_refuse(why, n, "option", argv[i], "one that --help lists");
        const char *equals = strchr(argv[i], '=');
        if (row->kind == OPTION_FLAG && equals)
            return options_refuse(why, n, row->name, equals, "no value");
        const char *value = "";
        int none = 0;
        if (row->kind != OPTION_FLAG) value = value_of(argc, argv, &i, &none);
        if (none && row->kind == OPTION_MAYBE) {
            value = "";
            i--;
            none = 0;
        }
        if (none || set(into, row, value) != 0)
            return options_refuse(why, n, row->name, value,
                                  expected(row, words, sizeof words));
    }
    return OPTIONS_READ;
}

void options_print(const struct option_table *t)
{
    enum { INDENT = 25, WIDTH = 84 };
    for (const struct option_row *row = t->row; row < t->row + t->n; row++) {
        const char *value = row->value ? row->value : row->expects;
        int at = printf("  %s%s%s", row->name, *value ? " " : "", value);
        if (at >= INDENT)
            at = printf("\n") - 1;
        for (const char *s = row->help; *s; s += *s == ' ') {
            const int length = (int)strcspn(s, " ");
            if (at + length >= WIDTH)
                at = printf("\n") - 1;
            at += printf("%*s%.*s", at < INDENT ? INDENT - at : 1, "", length, s);
            s += length;
        }
        printf("\n");
    }
}
