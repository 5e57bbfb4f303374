/* plants.h -- mistakes planted around the references, which the judge must see.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_trials.c,
 * self_lists.c.  Next: plants.c.
 *
 * A plant is a variant that is right but for one mistake. self_trials.c judges each on
 * cases of its own and compares the verdict in words; self_lists.c judges each on the
 * judge's lists of cases, some of which must reject it.
 */
#ifndef KCP_PLANTS_H
#define KCP_PLANTS_H

#include "trial.h"

struct plant {
    const char *name, *stage;
    int (*run)(void *);
    const char *cases;             /* words; NULL: one small case */
    const char *verdict;           /* words that the last verdict has */
    const char *field;             /* what the mistake is in, for generic ones: */
    int64_t at;                    /* which number of the field, or from its end on */
    double by;
    size_t (*work)(const void *);
    int (*forward)(struct kcp_forward *);      /* before 13, instead of the reference */
    enum { ANY_MEMORY, HOST_ONLY, FAR_ONLY } memory;
};
enum { END = 1 << 24 };            /* at = END + i: i numbers past the last */
extern const struct plant plants[];
extern const int nplants;
extern const struct plant *planted;            /* the one that runs */

/* At which sizes and model the mistake is. K 0: at any. */
struct planted_at { int K, V, model; };
extern struct planted_at planted_at;
int planted_here(const struct kcp_call *c);

/* A state that is not carried from chunk to chunk, where planted_at is; the same within
 * a layer, in chapter planted_chapter. */
int uncarried_04(void *args);
int uncarried_05(void *args);
int uncarried_09(void *args);
int uncarried_11(void *args);
extern int planted_chapter;
int planted_08(void *args);
int planted_13(void *args);

#endif
