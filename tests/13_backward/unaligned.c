/* unaligned.c -- checks the fast backward on arrays that are not aligned to 16 bytes.
 * Book: chapter 18c. */
#include "checked.h"
#include "tests/judge/trial.h"

#include <string.h>

enum { ARRAYS = 32, OFF = 8 };

static const struct kcp_variant *fast;

/* The arrays of a call, each copied to a place OFF bytes past an aligned address. */
struct moved {
    int n;
    struct { void **at, *theirs; char *ours; size_t bytes; } array[ARRAYS];
};

/* The raw inputs stay, because forward requires that they are aligned. */
static int moves(const struct kcp_field *f)
{
    static const char *const raw[] = { "q_raw", "k_raw", "v", "g_raw" };
    for (int i = 0; i < 4; i++)
        if (!strcmp(f->name, raw[i])) return 0;
    return f->store != KCP_I32 && f->store != KCP_I64;
}

static int move_away(struct kcp_backward *a, struct moved *x)
{
    const struct kcp_stage *s = stage_find("13");
    const struct memory *m = gpu_of_threads();
    for (int i = 0; i < s->nfields && x->n < ARRAYS; i++) {
        const struct kcp_field *f = &s->fields[i];
        void **p = (void **)(void *)((char *)a + f->at);
        const struct kcp_call *c = (const struct kcp_call *)a;
        const size_t bytes = (size_t)kcp_field_numbers(c, f)
                             * kcp_bytes_of(c, f->store, KCP_BF16);
        if (!*p || !moves(f) || !bytes) continue;
        char *ours = m->alloc(bytes + OFF);
        if (!ours) return KCP_NO_MEMORY;
        x->array[x->n].at = p;
        x->array[x->n].theirs = *p;
        x->array[x->n].ours = ours;
        x->array[x->n++].bytes = bytes;
        if (m->copy(ours + OFF, *p, bytes)) return KCP_CUDA;
        *p = ours + OFF;
    }
    return m->sync() ? KCP_CUDA : KCP_OK;
}

static int run(void *args)
{
    struct kcp_backward a = *(struct kcp_backward *)args;
    const struct memory *m = gpu_of_threads();
    struct moved x = { 0 };
    int status = move_away(&a, &x);
    if (!status) status = fast->run(&a);
    if (m->sync() && !status) status = KCP_CUDA;
    for (int i = 0; i < x.n; i++) {
        if (!status && m->copy(x.array[i].theirs, x.array[i].ours + OFF,
                               x.array[i].bytes))
            status = KCP_CUDA;
        m->free(x.array[i].ours);
    }
    return status;
}

/* The workspace is also for copies of all arrays, so it is as large as for a call whose
 * arrays are not aligned. */
static size_t work(const void *args)
{
    struct kcp_backward a = *(const struct kcp_backward *)args;
    const struct kcp_stage *s = stage_find("13");
    for (int i = 0; i < s->nfields; i++) {
        char **p = (char **)(void *)((char *)&a + s->fields[i].at);
        if (*p && moves(&s->fields[i])) *p += OFF;
    }
    return fast->work(&a);
}

static int unaligned(struct kcp_report *rep)
{
    const int found = kcp_variants("13_backward", "v4_scans_finish", &fast, 1);
    if (!gpu_of_threads() || found != 1) {
        printf("  (found no GPU that threads can share, or no kernel: not run)\n");
        return KCP_NA;
    }
    struct kcp_variant mine = *fast;
    mine.run = run;
    mine.work = work;
    return bits_agree(rep, fast, "live gdn H=2 HV=4 K=128 V=128 C=64 "
                      "lengths=150,33,0,70 l2norm beta=sigmoid h0 dht gate=softplus",
                      &mine, "");
}
KCP_CHECK(gpu_13_unaligned) = { "13_backward", "gpu_unaligned",
    "gradients have the same bits if arrays are not aligned to 16 bytes", unaligned };
