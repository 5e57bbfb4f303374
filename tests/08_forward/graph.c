/* graph.c -- checks that a layer's CUDA graph gives the same bits as a direct call.
 * Book: chapters 08 and 13.
 *
 * A call that runs cudaMalloc or makes the host wait cannot be captured. A successful
 * capture therefore proves that forward and backward do neither. */
#include "tests/judge/trial.h"

#include <stdlib.h>
#include <string.h>

#ifdef KCP_WITH_CUDA
#include <cuda_runtime_api.h>
#include <pthread.h>

/* Serializes the setup and the reports of ranks, which are threads. */
static pthread_mutex_t in_turn = PTHREAD_MUTEX_INITIALIZER;

/* The forward and the backward call of a rank, with the buffers of the calls. */
struct pair {
    struct kcp_layer layer;
    struct kcp_comm *comm;
    struct kcp_plan *plan;
    const struct kcp_plan *next;         /* plan of replays (NULL: `plan`) */
    struct rank_args rank[2];
    void *saved, *work;
    struct CUstream_st *stream;
};

static struct kcp_forward *forward_of(const struct pair *x)
{
    return (void *)x->rank[0].args;
}
static struct kcp_backward *backward_of(const struct pair *x)
{
    return (void *)x->rank[1].args;
}

static int fill_pair(struct pair *x, const struct kcase *k, const struct kcp_plan *p)
{
    static const char *const names[] = { "08_forward", "13_backward" };
    int err = KCP_OK;
    for (int i = 0; i < 2 && !err; i++) {
        const struct kcp_stage *s = stage_find(names[i]);
        const struct expected *e = expected_of(s, k, (enum kcp_pass)i,
                                               x->layer.storage, p);
        struct rank_args *t = &x->rank[i];
        if (!e) return KCP_BAD;
        t->call = call_of(s, k, p, x->comm ? x->comm->r : 0, (enum kcp_pass)i);
        kcp_layer_call(&x->layer, &t->call, p, x->comm);
        t->call.stream = x->stream;
        t->plan = p; t->mem = device_memory(); t->ranks = p->R;
        t->storage = x->layer.storage;
        err = rank_args_fill(t, s, &e->in, &e->want);
        if (!err) err = rank_args_send(t);
    }
    return err;
}

/* Allocates the buffers of the forward and the backward call. */
static int open_pair(struct pair *x, const struct kcase *k, const struct kcp_plan *p)
{
    const struct memory *m = device_memory();
    if (cudaStreamCreate(&x->stream)) return KCP_CUDA;
    const int err = fill_pair(x, k, p);
    if (err) return err;
    const size_t kept = kcp_layer_saved(&x->layer, &x->rank[0].call);
    forward_of(x)->saved = x->saved = m->alloc(kept);
    backward_of(x)->saved = x->saved;
    forward_of(x)->saved_bytes = backward_of(x)->saved_bytes = kept;
    const size_t f = kcp_layer_forward_work(&x->layer, forward_of(x));
    const size_t b = kcp_layer_backward_work(&x->layer, backward_of(x));
    x->work = m->alloc(f > b ? f : b);
    forward_of(x)->work = backward_of(x)->work = x->work;
    forward_of(x)->work_bytes = f;
    backward_of(x)->work_bytes = b;
    return x->saved && x->work ? KCP_OK : KCP_NO_MEMORY;
}

static void close_pair(struct pair *x)
{
    const struct memory *m = device_memory();
    for (int i = 0; i < 2; i++)
        if (x->rank[i].args) rank_args_free(&x->rank[i]);
    if (x->saved) m->free(x->saved);
    if (x->work) m->free(x->work);
    if (x->stream) cudaStreamDestroy(x->stream);
}

static int go(struct pair *x)
{
    const int err = kcp_layer_forward(&x->layer, forward_of(x));
    return err ? err : kcp_layer_backward(&x->layer, backward_of(x));
}

static int collect(struct pair *x, char *why, size_t n)
{
    int err = cudaStreamSynchronize(x->stream) ? KCP_CUDA : KCP_OK;
    for (int i = 0; i < 2 && !err; i++) err = rank_args_fetch(&x->rank[i], why, n);
    for (int i = 0; i < 2 && !err; i++) err = rank_args_check(&x->rank[i], why, n);
    return err;
}

/* Fills outputs, saved tensors and workspace with NaN, to find missing writes. */
static int poison(struct pair *x)
{
    int err = cudaMemset(x->saved, 0xff, forward_of(x)->saved_bytes) ||
              cudaMemset(x->work, 0xff, backward_of(x)->work_bytes);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < x->rank[i].n; j++) {
            const struct buffer *o = &x->rank[i].buffer[j];
            char *at = (char *)o->base + FENCE;
            if (o->want) err |= cudaMemset(at, 0xff, o->bytes) != cudaSuccess;
        }
    return err || cudaDeviceSynchronize() ? KCP_CUDA : KCP_OK;
}

static void compare(struct kcp_report *rep, const struct pair *a, const struct pair *b,
                    const char *what, int replay)
{
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < a->rank[i].n; j++) {
            const struct buffer *x = &a->rank[i].buffer[j], *y = &b->rank[i].buffer[j];
            EXPECT(rep, !memcmp(x->image, y->image, x->bytes + 2 * FENCE),
                   "%s: %s of replay %d: wrong bits", what, x->field->name,
                   replay);
        }
}

/* Copies the plan, chunk grid and inputs of batch y to x, as an application does before
 * it replays a graph. */
static int refresh(struct pair *x, const struct pair *y)
{
    int err = x->next ? kcp_plan_refresh(x->plan, x->next, NULL) : KCP_OK;
    for (int i = 0; i < 2 && x->next; i++)
        for (int j = 0; j < x->rank[i].n && !err; j++) {
            const struct buffer *from = &y->rank[i].buffer[j];
            struct buffer *to = &x->rank[i].buffer[j];
            if (to->want) continue;
            memcpy(to->image, from->image, to->bytes + 2 * FENCE);
            err = device_memory()->copy(to->base, to->image, to->bytes + 2 * FENCE);
        }
    return err;
}

static int replay(struct kcp_report *rep, const struct pair *direct, struct pair *x,
                  const char *what)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    char why[160] = "";
    size_t nodes = 0;
    int err = cudaStreamBeginCapture(x->stream,
                                     x->comm ? cudaStreamCaptureModeThreadLocal
                                             : cudaStreamCaptureModeGlobal);
    if (!err) err = go(x);
    const int ended = cudaStreamEndCapture(x->stream, &graph);
    pthread_mutex_lock(&in_turn);
    EXPECT(rep, !err && !ended, "%s: not captured: status %d, %s", what, err,
           cudaGetErrorString(ended));
    pthread_mutex_unlock(&in_turn);
    if (err || ended || cudaGraphGetNodes(graph, NULL, &nodes) ||
        cudaGraphInstantiateWithFlags(&exec, graph, 0)) return KCP_CUDA;
    pthread_mutex_lock(&in_turn);
    EXPECT(rep, nodes > 8, "%s: only %zu nodes", what, nodes);
    pthread_mutex_unlock(&in_turn);
    err = refresh(x, direct);
    for (int i = 0; i < 3 && !err; i++) {
        err = poison(x);
        if (!err && cudaGraphLaunch(exec, x->stream)) err = KCP_CUDA;
        if (!err) err = collect(x, why, sizeof why);
        pthread_mutex_lock(&in_turn);
        if (!err) compare(rep, direct, x, what, i);
        pthread_mutex_unlock(&in_turn);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return err;
}

/* Runs case `words` directly, then as a graph that was captured for case `captured`.
 * Both cases have equal sizes. `comm` is NULL if the case has no exchange. */
static int one(struct kcp_report *rep, const struct kcp_layer *layer,
               struct kcp_comm *comm, const char *words, const char *captured)
{
    struct kcase k, first;
    char why[300] = "", what[500];
    struct pair direct = { .layer = *layer, .comm = comm }, again = direct;
    if (case_parse(words, &k, why, sizeof why) ||
        case_parse(captured, &first, why, sizeof why)) return KCP_BAD;
    snprintf(what, sizeof what, "%s, rank %d, %s", layer->forward->name,
             comm ? comm->r : 0, words);
    pthread_mutex_lock(&in_turn);
    struct kcp_plan *p = case_plan(&k, comm ? comm->R : 1);
    again.plan = case_plan(&first, comm ? comm->R : 1);
    again.next = words != captured ? p : NULL;
    int err = p && again.plan ? open_pair(&direct, &k, p) : KCP_NO_MEMORY;
    if (!err) err = open_pair(&again, &first, again.plan);
    pthread_mutex_unlock(&in_turn);
    if (!err) err = go(&direct);
    if (!err) err = collect(&direct, why, sizeof why);
    if (!err) err = replay(rep, &direct, &again, what);
    if (!err && comm) err = comm->barrier(comm, again.stream);
    pthread_mutex_lock(&in_turn);
    EXPECT(rep, !err, "%s: status %d %s", what, err, why);
    close_pair(&direct);
    close_pair(&again);
    kcp_plan_free(p);
    kcp_plan_free(again.plan);
    pthread_mutex_unlock(&in_turn);
    return err;
}

/* Pairs of batches with equal numbers of chunks and segments, also on each of 2 or 4
 * ranks. A graph captured with the first batch must run the second batch. */
static const char *const batches[][2] = {
    { ("kda live H=2 HV=4 K=64 V=64 lengths=150,300 l2norm beta=sigmoid gate=bounded"
       " h0 dht"),
      ("kda live H=2 HV=4 K=64 V=64 lengths=160,290 l2norm beta=sigmoid gate=bounded"
       " h0 dht") },
    { "gdn live H=1 HV=2 K=128 V=64 lengths=150,300 gate=softplus save=all h0",
      "gdn live H=1 HV=2 K=128 V=64 lengths=160,290 gate=softplus save=all h0" } };
enum { BATCHES = sizeof batches / sizeof *batches };

static int graph(struct kcp_report *rep)
{
    static const char *const words[] = {
        ("kda live H=2 HV=4 K=64 V=64 lengths=150,0,300 l2norm beta=sigmoid"
         " gate=bounded h0 dht"),
        "kda strong H=2 K=128 V=128 lengths=500 l2norm save=all h0 dht",
        "gdn live H=1 HV=2 K=128 V=64 lengths=17,430 gate=softplus save=all reuse_M",
        "gdn live H=2 K=64 V=64 lengths=65,200,1 L=64 h0 dht layout=vk",
        "kda live H=1 HV=2 K=128 V=128 lengths=17,430 l2norm h0 dht" };
    const struct kcp_variant *v[256];
    const int n = kcp_variants("08_forward", NULL, v, 256);
    struct kcp_layer layer;
    if (!device_memory()) {
        printf("  (no GPU: not run)\n");
        return KCP_NA;
    }
    for (int i = 0; i < n; i++) {
        if (v[i]->where != KCP_DEVICE ||
            kcp_layer_gpu(&layer, v[i]->storage, v[i]->name, NULL, 0)) continue;
        for (size_t j = 0; j < sizeof words / sizeof *words; j++)
            one(rep, &layer, NULL, words[j], words[j]);
        for (int j = 0; j < BATCHES; j++)
            one(rep, &layer, NULL, batches[j][1], batches[j][0]);
    }
    return KCP_OK;
}
/* ---- ranks: threads with a GPU each, or the processes of a launcher */

struct ranks {
    struct kcp_report *rep;
    struct kcp_layer layer;
    const char *words, *captured;
};

static int of_rank(struct kcp_comm *comm, void *arg)
{
    const struct ranks *j = arg;
    return one(j->rep, &j->layer, comm, j->words, j->captured);
}

static int graph_ranks(struct kcp_report *rep)
{
    static const char *const words[] = {
        ("kda live chain H=2 HV=4 K=64 V=64 lengths=150,0,300 R=2 l2norm beta=sigmoid"
         " gate=bounded h0 dht"),
        "kda live all_gather H=2 K=128 V=128 lengths=900 R=2 l2norm h0 dht reuse_M",
        "gdn live chain H=1 HV=2 K=128 V=64 lengths=17,430 R=2 gate=softplus save=all",
        "gdn live pipeline H=2 K=64 V=64 lengths=365 R=2 h0 dht layout=vk",
        "kda live scan H=2 K=128 V=128 lengths=300,500 R=2 l2norm h0 dht" };
    struct ranks j = { .rep = rep };
    char why[300] = "";
    int gpus = 0;
    if (!device_memory() || cudaGetDeviceCount(&gpus) ||
        (gpus < 2 && !ranks_started())) {
        printf("  (%d GPUs found, 2 needed: not run)\n", gpus);
        return KCP_NA;
    }
    if (kcp_layer_gpu(&j.layer, KCP_BF16, NULL, why, sizeof why)) return KCP_NA;
    const int started = ranks_started(), here = gpus < 4 ? gpus : 4;
    const int fewest = started ? started : 2;
    const int most = started ? started : here;
    for (int R = fewest; R <= most; R *= 2)
        for (int i = 0; i < 5 + (R % 2 ? 0 : BATCHES); i++) {
            j.words = i < 5 ? words[i] : batches[i - 5][1];
            j.captured = i < 5 ? words[i] : batches[i - 5][0];
            const int err = ranks_over_nccl(R, of_rank, &j, why, sizeof why);
            if (err == KCP_NA) return KCP_NA;
            EXPECT(rep, !err, "%d ranks, %s: status %d %s", R, j.words, err, why);
        }
    return KCP_OK;
}
#else
static int graph_ranks(struct kcp_report *rep)
{
    printf("  (built without CUDA: not run)\n");
    return KCP_NA;
}

static int graph(struct kcp_report *rep)
{
    printf("  (built without CUDA: not run)\n");
    return KCP_NA;
}
#endif

KCP_CHECK(check_08_graph) = { "08_forward", "gpu_graph",
    "a CUDA graph of stages 08 and 13 gives the bits of direct calls", graph };

KCP_CHECK(check_08_graph_ranks) = { "08_forward", "gpu_graph_ranks",
    "a CUDA graph of stages 08 and 13 with the exchange gives the bits of direct "
    "calls on several ranks", graph_ranks };
