/* options.c -- random words as a command line: read, or refused with one line.
 *
 * Book: none.  Checked by: make fuzz.  Next: tests/fuzz/words.c.
 *
 * The input bytes are words, each followed by a zero. Values that were read are in
 * range, and members without an option are unchanged. */
#include "base/options.h"
#include "tests/must.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct all {
    long before;
    const char *text;
    int flag, small, word;
    int64_t whole;
    double real;
    long after;
};

static const struct option_row rows[] = {
    { "--text", OPTION_TEXT, offsetof(struct all, text), "words", 0, 0 },
    { "--flag", OPTION_FLAG, offsetof(struct all, flag), NULL, 0, 0 },
    { "--int", OPTION_INT, offsetof(struct all, small), NULL, -7, 1024 },
    { "-n", OPTION_INT, offsetof(struct all, small), NULL, -7, 1024 },
    { "--whole", OPTION_WHOLE, offsetof(struct all, whole), NULL, 0, 1e15 },
    { "--real", OPTION_REAL, offsetof(struct all, real), "a number", -5, 0 },
    { "--word", OPTION_WORD, offsetof(struct all, word), "kda|gdn||gla", 0, 0 },
};

static int helped;
static void help(void) { helped++; }

static const struct option_table tables[2] = {
    { "fuzz", rows, sizeof rows / sizeof *rows, 0, help, 1 },
    { "fuzz", rows, sizeof rows / sizeof *rows, 1, help, 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 40 };
    char *copy = malloc(size + 1), *argv[MOST + 1];
    char why[120];
    int argc = 1;
    MUST(copy);
    if (size)
        memcpy(copy, data, size);
    copy[size] = 0;
    argv[0] = copy;
    for (size_t at = 0; at < size && argc < MOST; at += strlen(copy + at) + 1)
        argv[argc++] = copy + at;
    argv[argc] = NULL;
    for (int t = 0; t < 2; t++) {
        struct all x = { .before = 77, .small = 3, .real = -1, .after = 78 };
        memset(why, 'x', sizeof why);
        /* --version prints, so it is left out here. */
        int version = 0;
        for (int i = 1; i < argc; i++)
            version |= strcmp(argv[i], "--version") == 0;
        if (version)
            continue;
        const int status = options_read(&tables[t], argc, argv, &x, why, sizeof why);
        MUST(status == OPTIONS_READ || status == OPTIONS_DONE || status == OPTIONS_BAD);
        MUST(x.before == 77 && x.after == 78);
        MUST(x.flag == 0 || x.flag == 1);
        MUST(x.small >= -7 && x.small <= 1024);
        MUST(x.whole >= 0 && x.whole <= 1000000000000000);
        MUST(isfinite(x.real) && x.real >= -5 && x.real < 0);
        MUST(x.word >= 0 && x.word <= 3);
        if (status == OPTIONS_BAD) {
            const size_t n = strnlen(why, sizeof why);
            MUST(n < sizeof why && strstr(why, "found") && !memchr(why, '\n', n));
        }
        MUST(!x.text || (x.text >= copy && x.text < copy + size + 1));
    }
    free(copy);
    return 0;
}
