/* self_plants.h -- mistakes that the judge's lists must see, and how it is asked.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_plants.c.
 * Next: self_plants.c.
 *
 * A plant is a reference with a mistake around it. Seen it is when a value is off by
 * more than its limit, as of a mutant: one that is refused with a status, or breaks,
 * shows nothing of the cases.
 */
#ifndef KCP_SELF_PLANTS_H
#define KCP_SELF_PLANTS_H

#include "trial.h"

struct plant {
    const char *stage;
    int (*run)(void *);
    enum kcp_storage storage;      /* of its arrays */
    enum kcp_storage judged;       /* the limits it is held to */
    int by_status;                 /* it refuses: the status is what is to be seen */
};

/* At which size and model the mistake is. K 0: at any. */
struct planted_at { int K, V, model; };
extern struct planted_at planted_at;
int planted_here(const struct kcp_call *c);

/* In how many of the cases it is seen, and by how many limits in the worst of them. Of
 * the size and model where it is; cheap cases first. first: it may stop there. */
struct sight { int cases; double limits; char why[160]; };
struct sight plant_seen(const struct plant *p, const struct kcase *list, int n,
                        int first);
/* The sizes that tensor cores take. */
enum { PLANTED_SIZES = 4 };
extern const int planted_sizes[PLANTED_SIZES][2];

/* The state is not carried from chunk to chunk, where planted_at is. */
int uncarried_04(void *args);
int uncarried_05(void *args);
int uncarried_09(void *args);
int uncarried_11(void *args);
/* The same inside of a layer: that of chapter planted_in_layer. */
extern int planted_in_layer;
int planted_08(void *args);
int planted_13(void *args);

#endif
