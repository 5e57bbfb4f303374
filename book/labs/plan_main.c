/* plan_main.c -- compares a student's plan with the library's, segment by segment.
 * Book: chapter 06, staff.md.  Used by: make grade LAB=06_plan.
 * kcp-lab-check plan ./lab.so one|many|owners|canonical. The student's process computes
 * each plan and returns the segments; this process compares them with the library's.
 */
#include "apart.h"
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

enum { TRIALS = 200, MOST = 96, MOST_N = 7, MOST_B = 12 };
enum row { ONE, MANY, OWNERS, CANONICAL, ROWS };
static const char *const row_name[] = { "one", "many", "owners", "canonical" };
typedef int maker(struct kcp_plan **, int N, const int64_t *cu, int R,
                  const struct kcp_owners *, int64_t L, int C, int Wc, const char **);

struct batch {
    const char *object;
    int N, R, B, owner[MOST_B];
    int64_t L, cu[MOST_N + 1], bound[MOST_B + 1];
};

/* The status of a plan, and its segments in the order of tokens. */
struct found { int status, S; struct kcp_segment seg[MOST]; uint64_t digest; };

static void draw(struct batch *b, enum row row, int trial)
{
    struct stream s = stream_of(trial, row_name[row]);
    b->N = row == ONE ? 1 : 1 + (int)(uniform(&s) * MOST_N);
    b->R = 1 + (int)(uniform(&s) * 5);
    b->L = row == CANONICAL ? 1 + (int)(uniform(&s) * 6) : 0;
    b->B = row >= OWNERS ? 1 + (int)(uniform(&s) * MOST_B) : b->R;
    b->cu[0] = b->bound[0] = 0;
    for (int n = 0; n < b->N; n++)
        b->cu[n + 1] = b->cu[n] + (int64_t)(uniform(&s) * 10 * (trial % 4 ? 1 : n % 2));
    for (int i = 0; i < b->B; i++) {
        const int64_t left = b->cu[b->N] - b->bound[i];
        b->owner[i] = row >= OWNERS ? (int)(uniform(&s) * b->R) : i;
        b->bound[i + 1] = i + 1 == b->B ? b->cu[b->N]
                                        : b->bound[i] + (int64_t)(uniform(&s) * left);
    }
}

static void made(struct batch *b, maker *make, struct found *f)
{
    const struct kcp_owners o = { b->B, b->bound, b->owner };
    struct kcp_plan *p = NULL;
    const char *why;
    f->status = make(&p, b->N, b->cu, b->R, &o, b->L, 4, 4, &why);
    if (f->status || !p) return;
    f->S = p->S;
    f->digest = p->digest;
    for (int i = 0; i < p->S && i < MOST; i++) {
        const int j = p->order[i];
        if (j < 0 || j >= p->S) f->status = KCP_BAD;
        else f->seg[i] = p->seg[j];
    }
}

static void in_process(const void *arg, void *answer)
{
    struct batch b = *(const struct batch *)arg;
    made(&b, (maker *)lab_function(b.object), answer);
}

static void show(const char *whose, const struct found *f, int i)
{
    const struct kcp_segment *s = &f->seg[i];
    if (i >= f->S) printf("        %s: no segment %d\n", whose, i);
    else
        printf("        %s: segment %d: tokens %lld .. %lld of sequence %d on rank %d,"
               " first %d last %d, prev %d next %d, owners change %d times before it"
               " and %d times after it\n", whose, i,
               (long long)s->begin, (long long)s->end - 1, s->n, s->rank, s->first,
               s->last, s->prev, s->next, s->pre, s->post);
}

static int same(const struct kcp_segment *a, const struct kcp_segment *b)
{
    return a->n == b->n && a->rank == b->rank && a->begin == b->begin &&
           a->end == b->end && a->first == b->first && a->last == b->last &&
           a->prev == b->prev && a->next == b->next && a->pre == b->pre &&
           a->post == b->post && a->at == b->at;
}

/* Prints the first segment that differs and returns 1; returns 0 if none differs. */
static int differs(const struct batch *b, const struct found *f, const struct found *r)
{
    int i = 0;
    while (i < r->S && i < f->S && same(&f->seg[i], &r->seg[i])) i++;
    if (!f->status && f->S == r->S && i == r->S && f->digest == r->digest) return 0;
    printf("  FAIL  %d sequences, %d ranks%s", b->N, b->R, b->L ? ", canonical" : "");
    printf("; sequences begin at");
    for (int n = 0; n <= b->N; n++) printf(" %lld", (long long)b->cu[n]);
    printf("; ranges (first token:owner)");
    for (int k = 0; k < b->B; k++)
        printf(" %lld:%d", (long long)b->bound[k], b->owner[k]);
    printf("%s\n", f->status ? "; the call returns an error" : "");
    if (f->status) printf("        status %d\n", f->status);
    else if (i == r->S && f->S == r->S)
        printf("        the segments agree; cuts, L or the ranks' order do not\n");
    else {
        show("yours", f, i);
        show("right", r, i);
    }
    return 1;
}

int plan_main(int argc, char **argv)
{
    int row = 0, bad = argc != 3;
    while (!bad && row < ROWS && strcmp(argv[2], row_name[row])) row++;
    if (bad || row == ROWS) {
        fprintf(stderr, "kcp-lab-check: plan: expected ./lab.so and one, many, owners"
                " or canonical\n");
        return 2;
    }
    for (int i = 0; i < TRIALS; i++) {
        static struct found mine, right;
        struct batch b = { .object = argv[1] };
        draw(&b, row, i);
        memset(&mine, 0, sizeof mine);
        memset(&right, 0, sizeof right);
        made(&b, kcp_plan_owned, &right);
        if (!strcmp(argv[1], "-")) made(&b, kcp_plan_owned, &mine);
        else if (apart(in_process, &b, &mine, sizeof mine)) return 1;
        if (differs(&b, &mine, &right)) return 1;
    }
    printf("1 passed, 0 failed, 0 skipped\n");
    return 0;
}
