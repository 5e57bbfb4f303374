/* main.c -- kcp-bench: times every variant of every stage, or whole layers on ranks.
 * Each run also times two controls: a copy and a matrix product.
 * Book: chapter 18.
 *
 * A stage's inputs are the results of earlier stages, computed on the GPU. At the
 * default sizes these arrays are far larger than the L2 cache. */
#include "bench.h"
#include "base/options.h"
#include "comm/backend/kcp_mpi.h"
#include <string.h>

/* Times one variant of a stage: in stages 08 and 13 the one that a layer would choose,
 * in other stages the newest that supports the shape. */
static int newest(struct runner *x, const struct kcp_stage *st,
                  const struct kcp_variant **v, int n)
{
    const int is_pass = st->facts & (KCP_SAVES | KCP_LOADS);
    const struct kcp_variant *chosen = is_pass ? runner_choice(x, st) : NULL;
    int e = chosen ? runner_variant(x, st, chosen) : KCP_NA;
    for (int j = n - 1; j >= 0 && e == KCP_NA; j--)
        e = runner_variant(x, st, v[j]);
    return e == KCP_NA ? KCP_OK : e;
}

/* Returns 1 if only stages 08 and 13 are timed. They read no results of other stages,
 * and their kernels support types that those of other stages do not, such as f16. */
static int only_layers(const struct bench *b)
{
    for (int i = 0; i < kcp_nstages; i++)
        if (bench_selects(b, &kcp_stages[i])
            && !(kcp_stages[i].facts & (KCP_SAVES | KCP_LOADS))) return 0;
    return 1;
}

/* For each stage in chain[], runs the newest variant that supports the shape. For
 * --stage 15, runs only stage 02, which computes the q and k that stage 15 reads. The
 * other stages do not support chunks as long as those of stage 15. */
static int runner_chain(struct runner *x)
{
    static const struct { const char *stage; int makes_maps; } chain[] = {
        { "02_gate" }, { "03_wy" }, { "04_chunk" }, { "05_affine", 1 },
        { "09_chunk_backward" }, { "11_merge_backward", 1 }, { "10_wy_backward" } };
    const char *only = x->b->stages;
    int n_chain = sizeof chain / sizeof *chain;
    if (only && kcp_stage_is(only, KCP_SPIKES)) n_chain = 1;
    if (kcp_models[x->call.model].kind == KCP_FAMILY) n_chain = 0;
    for (int i = 0; i < n_chain; i++) {
        const struct kcp_stage *st = stage_find(chain[i].stage);
        const struct kcp_variant *v[64];
        const int n = kcp_variants(st->name, NULL, v, 64);
        int e = KCP_NA;
        for (int j = n - 1; j >= 0 && e == KCP_NA; j--)
            if (v[j]->where == KCP_DEVICE && v[j]->storage == KCP_BF16)
                e = runner_once(x, st, v[j]);
        /* Only maps are missing if no kernel supports a large V. */
        if (e == KCP_NA && chain[i].makes_maps) continue;
        if (e == KCP_NA && only_layers(x->b)) return KCP_OK;
        if (e) {
            fprintf(stderr, "kcp-bench: %s: status %d\n", chain[i].stage, e);
            return e;
        }
    }
    return n_chain > 2 ? fill_ladder(x) : KCP_OK;
}

static int stages(struct runner *x)
{
    const struct bench *b = x->b;
    int e = runner_chain(x);
    if (e) return e;
    print_header(x);
    for (int i = 0; i < kcp_nstages && !e; i++) {
        const struct kcp_stage *st = &kcp_stages[i];
        const struct kcp_variant *v[64];
        if (!bench_selects(b, st)) continue;
        int n = 0;
        const int all = kcp_variants(st->name, b->variant, v, 64);
        for (int j = 0; j < all; j++)
            if (v[j]->where == KCP_DEVICE && v[j]->storage == KCP_BF16) v[n++] = v[j];
        e = b->newest ? newest(x, st, v, n) : KCP_OK;
        for (int j = 0; j < n && !e && !b->newest; j++) {
            e = runner_variant(x, st, v[j]);
            if (e == KCP_NA) e = KCP_OK;
        }
        fflush(stdout);
    }
    return e;
}

static int body(struct kcp_comm *comm, void *arg)
{
    struct runner x = { .b = arg, .world = comm };
    const int first = comm->r == 0;
    int e = runner_open(&x, comm);
    if (!e && x.b->ranks > 1)
        e = measure_gather(&x, sizeof(float) * x.call.HV * x.call.K
                                   * (size_t)(x.call.V + x.call.K));
    if (!e && first && x.b->tsv) {
        x.tsv = fopen(x.b->tsv, "w");
        if (!x.tsv) e = bench_bad("--tsv", x.b->tsv, "a file in a writable folder");
    }
    if (!e) e = x.b->ranks ? runner_layers(&x) : stages(&x);
    const int lost = x.tsv && ferror(x.tsv);
    if (x.tsv && (fclose(x.tsv) || lost) && !e)
        e = bench_bad("--tsv", x.b->tsv, "a file on a disk that is not full");
    runner_close(&x);
    return e;
}

static void print_case(const struct bench *b)
{
    const struct kcp_call *c = &b->call;
    printf("# copy %.2f TB/s, bf16 product %.0f TFLOP/s; T=%lld H=%d HV=%d K=%d V=%d"
           " C=%d segments=%d %s %s save=%s; %d warm-up, median of %d\n",
           b->copy / 1e12, b->product / 1e12, (long long)c->T, c->H, c->HV, c->K, c->V,
           c->C, c->NS, model_name[c->model], regime_name[b->regime],
           save_word(b), b->warmup, b->iters);
    if (b->lengths)
        printf("# %d sequences of %s tokens\n", c->N, b->lengths);
}

static int kcp_bench(int argc, char **argv)
{
    struct bench b = { .warmup = 20, .iters = 100, .deep_channels = 1 };
    const int status = bench_options(argc, argv, &b);
    if (status) return status < 0 ? 0 : status;
    const struct memory *m = device_memory();
    if (!m) {
        fprintf(stderr, "kcp-bench: no GPU found, so nothing was timed\n");
        return 1;
    }
    if (!b.backend && b.ranks > 1) {         /* NCCL needs one GPU per rank */
        if (!m->gpu(b.ranks - 1)) b.backend = "nccl";
        m->gpu(0);
    }
    int e = ranks_open(b.backend, 1, &b.ranks);
    if (e) return e;
    if (measure_controls(&b)) {
        fprintf(stderr, "kcp-bench: cannot time a copy and a matrix product, "
                        "which need 5 GiB of free GPU memory\n");
        return 1;
    }
    char why[200] = "";
    print_case(&b);
    e = ranks_run(m, b.ranks > 1 ? b.ranks : 1, body, &b, why, sizeof why);
    if (e) fprintf(stderr, "kcp-bench: status %d: %s\n", e, why);
    ranks_close();
    if (b.wrong)
        fprintf(stderr, "kcp-bench: results of %d rows are wrong (FAIL)\n", b.wrong);
    return e || b.wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    print_notices();
    return kcp_mpi_end(finish_stdout("kcp-bench", kcp_bench(argc, argv)));
}
