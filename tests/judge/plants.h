/* plants.h -- plants: variants whose verdicts are known, as tests of the judge.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * Most plants have one mistake, and a few are correct. tests/00_judge/trials.c judges
 * each plant of table `plants` on its row's cases, and compares the verdict with the
 * row's words. */
#pragma once

#include "trial.h"

struct plant {
    const char *name, *stage;
    int (*run)(void *);
    const char *cases;             /* text of cases; NULL: one small case */
    const char *verdict;           /* words that the verdict must contain */
    const char *field;             /* field with the mistake */
    int64_t at;                    /* index in the field, or END + i */
    double by;
    size_t (*work)(const void *);
    int (*forward)(struct kcp_forward *);      /* replaces the forward before 13 */
    enum { ANY_MEMORY, HOST_ONLY, FAR_ONLY } memory;
};
enum { END = 1 << 24 };            /* END + i means i numbers after the end */
extern const struct plant plants[];
extern const int nplants;
extern const struct plant *planted;            /* the plant that runs */
