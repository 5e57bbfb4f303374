/* calls.c -- calls any stage with random arguments. The call must be rejected with a
 * message, or stay inside its arrays, which have exactly the bytes of their shapes.
 * Book: chapter 20.
 *
 * The first input bytes select stage, model, pass and ranks. Then groups of bytes
 * change a valid call. Three bytes select an option or size, a rank and a value. Four
 * bytes select an array and a rank, and set the array to NULL or change an index. */
#include "tests/made_call.h"

#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                               \
    do {                                                                              \
        if (condition) break;                                                         \
        fprintf(stderr, "%s, line %d: %s\n", __FILE__, __LINE__, #condition);         \
        abort();                                                                      \
    } while (0)

/* Lets a huge allocation return NULL instead of ending the run. */
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=256";
}

enum { MOST = 4096, MOST_R = 3 };

struct input { const uint8_t *at, *end; int stage, model, pass, R, L; };

static int take(struct input *in) { return in->at < in->end ? *in->at++ : 0; }

/* Returns a number that is mostly small and sometimes extreme. */
static int number(struct input *in)
{
    const int x = take(in);
    if (x == 255) return INT32_MAX;
    if (x == 254) return INT32_MIN;
    if (x == 253) return 99;
    if (x == 252) return 1 << 20;
    return x < 24 ? x : (int8_t)x;
}

/* Changes sizes and options. The arrays are made afterwards, with the changed sizes. */
static void change_sizes(struct input *in, struct kcp_call *c, int mine)
{
    for (int n = take(in) % 8; n > 0; n--) {
        const int which = take(in), rank = take(in) % in->R, value = number(in);
        if (rank != mine) continue;
        if (which % 32 < kcp_nmembers && kcp_members[which % 32].kind != MEMBER_REAL)
            *(int *)((char *)c + kcp_members[which % 32].at) = value;
        else if (which % 32 == 27) c->r = value;
        else if (which % 32 == 28) c->T = value;
        else if (which % 32 == 29) c->scale = value == 99 ? 0.0 / 0.0 * value : value;
        else if (which % 32 == 30) c->lower_bound = value;
    }
}

static void change_arrays(struct input *in, struct made_call *m, int mine)
{
    for (int n = take(in) % 4; n > 0; n--) {
        const int which = take(in) % m->stage->nfields, rank = take(in) % in->R;
        const int at = take(in), value = number(in);
        if (rank != mine) continue;
        const enum kcp_store store = m->stage->fields[which].store;
        if (at % 4 == 0) made_set(m, which, NULL);
        else if (m->numbers[which] > 0 && store == KCP_I32)
            ((int32_t *)m->array[which])[at % m->numbers[which]] = value;
        else if (m->numbers[which] > 0 && store == KCP_I64)
            ((int64_t *)m->array[which])[at % m->numbers[which]] = value;
    }
}

static int body(struct kcp_comm *comm, void *arg)
{
    struct input in = *(const struct input *)arg;
    const struct kcp_stage *s = &kcp_stages[in.stage % kcp_nstages];
    const int64_t cu[3] = { 0, 5, 17 };
    const int mine = comm ? comm->r : 0;
    struct kcp_plan *plan = NULL;
    struct made_call m;
    MUST(!kcp_plan_make(&plan, 2, cu, in.R, NULL, in.L, 8, 3, NULL));
    made_call(&m, s, (enum kcp_model)in.model, (enum kcp_pass)in.pass,
              s->ranks ? plan : NULL, comm);
    for (int i = 0; i < s->nfields; i++) free(m.array[i]);
    change_sizes(&in, &m.a.call, mine);
    made_arrays(&m, MOST);
    made_indices(&m);
    change_arrays(&in, &m, mine);
    if (s->facts & KCP_LOADS) made_saved(&m);
    const int expected = kcp_check_call(s->name, KCP_HOST, &m.a);
    MUST(expected == KCP_OK || (expected == KCP_BAD && kcp_why()[0]));
    const int status = take(&in) % 2 && s->oracle ? s->oracle(&m.a) : s->ref(&m.a);
    MUST(status >= KCP_OK && status <= KCP_MISMATCH);
    const int is_plain = status == KCP_OK || status == KCP_COMM ||
                         status == KCP_NO_MEMORY;
    if (!is_plain && !kcp_why()[0])
        fprintf(stderr, "%s: status %d\n", s->name, status);
    MUST(is_plain || kcp_why()[0]);
    const int may_lack_arrays = s->oracle || !strncmp(s->name, "02", 2);
    MUST(expected == KCP_OK || status != KCP_OK || may_lack_arrays);
    made_free(&m);
    kcp_plan_free(plan);
    return KCP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { .at = data, .end = data + size };
    in.stage = take(&in);
    in.model = take(&in) % KCP_MODELS;
    while (!kcp_stage_takes(&kcp_stages[in.stage % kcp_nstages], in.model))
        in.model = (in.model + 1) % KCP_MODELS;
    in.pass = take(&in) % 2;
    const int ranks = take(&in);
    in.R = kcp_stages[in.stage % kcp_nstages].ranks && ranks % 8 == 1 ? MOST_R : 1;
    in.L = ranks % 3 == 2 ? 8 : 0;
    if (in.R == 1) body(NULL, &in);
    else MUST(kcp_threads_run(in.R, body, &in, NULL, 0) <= KCP_MISMATCH);
    return 0;
}
