/* agree.c -- compares the calls of all ranks before the first exchange.
 * Book: chapter 20.
 *
 * Each rank sends one row of numbers: its sizes and options, and a digest of its plan.
 * All ranks compare all rows and return the same status, so the communicator stays
 * usable. */
#include "checked.h"
#include "comm/form/exchange.h"

#include <stdlib.h>
#include <string.h>

/* A rank's row contains the values of kcp_members, then these numbers. */
enum { STAGE, CU, CUTS, L, ARRAYS, PLAN, MORE, WORDS = KCP_MOST_MEMBERS + MORE };
static const char *const more[] = { "stage", "cu_seqlens", "cuts", "L",
                                    "arrays that may be NULL", "plan" };

/* ---- the row of a rank */
/* Masks (int32), optional outputs, and the inputs x0 and dxt of stage 14 must be given
 * on all ranks or on no rank. Returns one bit for each such array that is given. */
static uint64_t arrays_given(const struct kcp_stage *s, const void *args)
{
    uint64_t given = 0;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        const int is_out = f->io != KCP_IN && f->io != KCP_BIN;
        const int travels = !strcmp(f->name, "x0") || !strcmp(f->name, "dxt");
        if (f->when == KCP_MAYBE && (is_out || travels || f->store == KCP_I32) &&
            *(void *const *)((const char *)args + f->at))
            given |= UINT64_C(1) << i;
    }
    return given;
}

static void fill_row(const struct kcp_stage *s, const void *args, uint64_t x[WORDS])
{
    const struct kcp_call *c = args;
    const struct kcp_plan *p = c->plan;
    memset(x, 0, WORDS * sizeof *x);
    for (int i = 0; i < kcp_nmembers; i++) {
        const char *at = (const char *)c + kcp_members[i].at;
        if (!kcp_members[i].same) continue;
        if (kcp_members[i].kind == MEMBER_REAL) memcpy(&x[i], at, sizeof(double));
        else x[i] = (uint64_t)*(const int *)at;
    }
    x += kcp_nmembers;
    x[STAGE] = (uint64_t)strtol(s->name, NULL, 10);
    x[CU] = kcp_digest(p->cu_seqlens, p->N + 1LL);
    x[CUTS] = kcp_digest(p->cuts, p->R + 1LL);
    x[L] = (uint64_t)p->L;
    x[ARRAYS] = c->T ? arrays_given(s, args) : 0;
    x[PLAN] = p->digest ? p->digest : kcp_plan_digest(p);
}

static int differ(const struct kcp_stage *s, int i, int r, const uint64_t *theirs,
                  const uint64_t *first)
{
    const struct kcp_member *member = &kcp_members[i];
    double x, y;
    if (i >= kcp_nmembers)
        return kcp_refuse(KCP_MISMATCH, "%s: %s: rank %d differs from rank 0; all "
                          "ranks need the same value", s->name, more[i - kcp_nmembers],
                          r);
    if (member->kind != MEMBER_REAL)
        return kcp_refuse(KCP_MISMATCH, "%s: %s: rank %d has %d, rank 0 has %d",
                          s->name, member->name, r, (int)theirs[i], (int)first[i]);
    memcpy(&x, &theirs[i], sizeof x);
    memcpy(&y, &first[i], sizeof y);
    return kcp_refuse(KCP_MISMATCH, "%s: %s: rank %d has %.17g, rank 0 has %.17g",
                      s->name, member->name, r, x, y);
}

/* ---- comparison */
static int is_known(const struct kcp_comm *comm, uint64_t digest)
{
    const int most = sizeof comm->agreed / sizeof *comm->agreed;
    const int n = comm->agreements < most ? comm->agreements : most;
    for (int i = 0; i < n; i++)
        if (comm->agreed[i] == digest) return 1;
    return 0;
}

/* Compares the calls of all ranks, one row per call. The bits for arrays are compared
 * only between ranks with tokens, because a rank without tokens gives no arrays. */
static int compare(const struct kcp_stage *s, const struct kcp_call *c,
                   const uint64_t (*row)[WORDS])
{
    const struct kcp_plan *p = c->plan;
    const int arrays = kcp_nmembers + ARRAYS;
    int with_tokens = -1;
    for (int r = 0; r < p->R; r++) {
        for (int i = 0; i < WORDS; i++)
            if (i != arrays && row[r][i] != row[0][i])
                return differ(s, i, r, row[r], row[0]);
        if (p->ctx[r].NS == 0) continue;
        if (with_tokens >= 0 && row[r][arrays] != row[with_tokens][arrays])
            return kcp_refuse(KCP_MISMATCH, "%s: rank %d passes other optional arrays "
                              "than rank %d", s->name, r, with_tokens);
        with_tokens = r;
    }
    return KCP_OK;
}

int kcp_agree(const struct kcp_stage *s, const void *args)
{
    const struct kcp_call *c = args;
    struct kcp_comm *comm = c->comm;
    uint64_t mine[WORDS];
    if (!comm->show) return KCP_OK;
    fill_row(s, args, mine);
    const uint64_t digest = kcp_digest((const int64_t *)mine, WORDS);
    if (comm->show_waits && is_known(comm, digest)) return KCP_OK;
    uint64_t (*row)[WORDS] = malloc(sizeof *row * (size_t)comm->R);
    if (!row) {
        kcp_refuse(KCP_NO_MEMORY, "%s: out of memory while comparing the ranks' calls",
                   s->name);
        comm->fail(comm, KCP_NO_MEMORY, kcp_why());
        return KCP_NO_MEMORY;
    }
    int status = comm->show(comm, mine, row, sizeof mine, c->stream);
    if (!status) status = compare(s, c, (const uint64_t (*)[WORDS])row);
    if (!status && comm->show_waits) {
        const int most = sizeof comm->agreed / sizeof *comm->agreed;
        comm->agreed[comm->agreements++ % most] = digest;
    }
    free(row);
    return status == KCP_NA ? KCP_OK : status;
}
