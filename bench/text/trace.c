/* trace.c -- measures the CPU time of each stage, and the traffic of the exchange.
 *
 * With the linker's --wrap=f, calls of f go to __wrap_f in this file, not to ref/. */
#include "text.h"
#include "moves.h"
#include <time.h>

const char *const mark_name[MARKS] = {
    "embed, project", "14 conv", "02 gate", "03 wy", "05 affine map", "07 exchange",
    "04 scan, output", "logits, loss", "09 chunk backward", "11 map, reverse",
    "07 exchange, back", "10 wy backward", "02 gate backward", "14 conv backward",
    "gradients, sum",
};

static _Thread_local struct lane *lane;

double busy_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct lane *trace_on(struct lane *to)
{
    struct lane *was = lane;
    lane = to;
    return was;
}

void trace_mark(enum mark mark, double busy_from)
{
    if (lane) lane->busy[mark] += busy_seconds() - busy_from;
}

#define BETWEEN(type, f, mark)                                                        \
    int __real_##f(struct type *a);                                                   \
    int __wrap_##f(struct type *a);                                                   \
    int __wrap_##f(struct type *a)                                                    \
    {                                                                                 \
        const double busy = busy_seconds();                                           \
        const int status = __real_##f(a);                                             \
        trace_mark(mark, busy);                                                       \
        return status;                                                                \
    }
#define EITHER(a, forward, backward) ((a)->pass == KCP_FORWARD ? forward : backward)

BETWEEN(kcp_gate, kcp_ref_gate, EITHER(a, MARK_GATE, MARK_GATE_BACK))
BETWEEN(kcp_conv, kcp_ref_conv, EITHER(a, MARK_CONV, MARK_CONV_BACK))
BETWEEN(kcp_wy, kcp_ref_wy, MARK_WY)
BETWEEN(kcp_affine, kcp_ref_affine, MARK_AFFINE)
BETWEEN(kcp_chunk, kcp_ref_chunk, MARK_CHUNK)
BETWEEN(kcp_chunk_backward, kcp_ref_chunk_backward, MARK_CHUNK_BACK)
BETWEEN(kcp_merge_backward, kcp_ref_merge_backward, MARK_MERGE_BACK)
BETWEEN(kcp_wy_backward, kcp_ref_wy_backward, MARK_WY_BACK)

void traffic_add(struct kcp_traffic *sum, struct kcp_traffic more)
{
    sum->bytes += more.bytes;
    sum->messages += more.messages;
    sum->collectives += more.collectives;
}

/* Runs the exchange. Adds the run's time, traffic and expected traffic to `lane`. */
static int exchange_run(const struct kcp_exchange *x)
{
    const double busy = busy_seconds();
    x->comm->traffic = (struct kcp_traffic){ 0 };
    const int status = kcp_exchange_run(x);
    trace_mark(x->backward ? MARK_EXCHANGE_BACK : MARK_EXCHANGE, busy);
    if (lane) {
        traffic_add(&lane->wire, x->comm->traffic);
        traffic_add(&lane->formula, kcp_exchange_formula(x));
    }
    return status;
}

/* Replaces the function by which the references run an exchange. */
void trace_exchanges(void)
{
    static struct moves traced;
    traced = *kcp_moves;
    traced.exchange_run = exchange_run;
    kcp_moves = &traced;
}
