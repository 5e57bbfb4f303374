/* path_call.c -- prints the paths of one call, given as words, on each architecture.
 * Book: chapter 08, "Paths". */
#include "paths.h"
#include "trial.h"
#include "base/options.h"

#include <stdlib.h>
#include <string.h>

struct asked_call { struct kcase k; enum kcp_storage storage; int saved; };

/* Reads words of a case, and three words that no case has: T=8192 (one sequence),
 * q=bf16 or q=f32 (the storage) and saved (forward saves a block). */
static int read_call(const char *text, struct asked_call *x, char *why, size_t n)
{
    char copy[1024], words[1100] = "", *rest = NULL;
    size_t used = 0;
    if (strlen(text) >= sizeof copy) text = "too many words";
    snprintf(copy, sizeof copy, "%s", text);
    x->storage = KCP_BF16;
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        int known = !strcmp(w, "saved");
        x->saved |= known;
        for (int i = KCP_F32; i <= KCP_BF16 && !strncmp(w, "q=", 2); i++)
            if (!strcmp(w + 2, storage_name[i])) {
                x->storage = (enum kcp_storage)i;
                known = 1;
            }
        const int tokens = !strncmp(w, "T=", 2);
        if (!known && !strncmp(w, "q=", 2) && strcmp(w, "q=f16")) {
            snprintf(why, n, "%s", w);
            return 1;
        }
        if (!known)
            used += (size_t)snprintf(words + used, sizeof words - used, "%s%s ",
                                     tokens ? "lengths=" : "", tokens ? w + 2 : w);
    }
    return case_parse(words, &x->k, why, n);
}

/* Prints the names of the launches (branches) that the call of q runs on path p. */
static void print_launches(const struct kcp_path *p, const struct kcp_query *q)
{
    int count = 0;
    for (int i = 0; i < kcp_npaths && p; i++)
        if (kcp_path_branches(&kcp_paths[i], p, q))
            printf("%s%s", count++ ? "," : "", kcp_paths[i].name);
    printf("%s\t", count ? "" : "-");
}

/* Prints one row per pass on device d for rank r. */
static void print_passes(const struct asked_call *x, const struct kcp_plan *plan, int r,
                         const struct kcp_device *d)
{
    const char *stages[] = { "08_forward", "13_backward" };
    const struct kcp_stage *s = stage_find(stages[0]);
    struct kcp_call call = call_of(s, &x->k, plan, r, KCP_FORWARD);
    struct kcp_query q = { .storage = x->storage, .call = &call, .device = d,
                           .saved = x->saved, .unlinked = 1 };
    char why[300], plain[300];
    for (int back = 0; back <= x->saved; back++) {
        q.stage = stages[back];
        const struct kcp_path *p = kcp_path_find(&q, NULL, why, sizeof why);
        printf("sm_%d\t%d\t%s\t%s\t", d->arch, r, back ? "backward" : "forward",
               p ? p->name : "none");
        print_launches(p, &q);
        kcp_plain(&call, x->storage, d, x->saved, 1, plain, sizeof plain);
        const int is_plain = kcp_path_is_plain(p);
        const char *reason = p ? plain : why;
        printf("%s\t%s\t%s\n", p ? p->kernel : "-",
               is_plain ? "yes" : "no", is_plain ? reason : "");
        q.format = p ? p->format : 0;
    }
}

int paths_of_call(const char *text)
{
    static const int archs[] = { 80, 90, 100 };
    struct asked_call x = { .saved = 0 };
    char why[200], out[400];
    if (read_call(text, &x, why, sizeof why)) {
        options_refuse(out, sizeof out, "--paths", why, "words such as 'gdn T=8192 "
                       "H=16 HV=32 K=128 V=128 q=bf16 g=f32 saved', R=2 (ranks), "
                       "lengths=4096,4096 (packed sequences)");
        return options_say("kcp-check", out);
    }
    struct kcp_plan *plan = case_plan(&x.k, x.k.call.R);
    struct kcp_device d = kcp_device_assumed();
    if (!plan) return 2;
    printf("arch\trank\tpass\tpath\tlaunch\tkernel\tplain\twhy\n");
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < plan->R; r++) {
            d.arch = archs[i];
            print_passes(&x, plan, r, &d);
        }
    kcp_plan_free(plan);
    return 0;
}
