/* bench.c -- kcp-bench: every variant of every stage, timed, beside the machine's own
 * copy and product measured in the same run.
 *
 * Book: chapter 17.  Checked by: its controls.  Next: bench_options.c.
 *
 * Inputs come from a chain of variants on the device, as the judge's come from the chain
 * of references. Buffers are far larger than the L2 at bench shapes.
 */
#include "bench.h"
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One sequence in NS equal stretches; the grid on the device. */
static int fill_grid(struct shelf *s, struct kcp_call *c)
{
    int *cu = malloc(sizeof(int) * (c->NS + 1)), *cn = malloc(sizeof(int) * (c->NS + 1));
    int e = cu && cn ? KCP_OK : KCP_NO_MEMORY;
    cn[0] = 0;
    for (int i = 0; i <= c->NS; i++) cu[i] = (int)(c->T * i / c->NS);
    for (int i = 0; i < c->NS; i++) cn[i + 1] = cn[i] + (cu[i + 1] - cu[i] + c->C - 1) / c->C;
    c->NC = cn[c->NS];
    int *sc = malloc(sizeof(int) * c->NC), *want = malloc(sizeof(int) * c->NS);
    for (int i = 0; i < c->NS; i++) {
        want[i] = KCP_WANT_H | KCP_WANT_M;
        for (int j = cn[i]; j < cn[i + 1]; j++) sc[j] = i;
    }
    const int range[] = { 0, c->NS };
    const int64_t whole[] = { 0, c->T };
    const struct { const char *name; const void *from; size_t bytes; } rows[] = {
        { "cu", cu, 4 * ((size_t)c->NS + 1) }, { "cn", cn, 4 * ((size_t)c->NS + 1) },
        { "sc", sc, 4 * (size_t)c->NC }, { "want", want, 4 * (size_t)c->NS },
        { "range", range, 8 }, { "cu_seqlens", whole, 16 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !e; i++) {
        void *p = shelf_add(s, rows[i].name, rows[i].bytes);
        if (!p || cudaMemcpy(p, rows[i].from, rows[i].bytes, cudaMemcpyHostToDevice))
            e = KCP_NO_MEMORY;
    }
    free(cu), free(cn), free(sc), free(want);
    return e;
}

/* The stage's args over the shelf: inputs must be there, outputs get room. */
static char *args_of(struct shelf *s, const struct kcp_stage *st, const struct kcp_call *c,
                     enum kcp_storage as)
{
    char *args = calloc(1, st->args);
    memcpy(args, c, sizeof *c);
    for (int i = 0; args && i < st->nfields; i++) {
        const struct kcp_field *f = &st->fields[i];
        int64_t dim[4], n = 1;
        if (!field_used(f, c)) continue;
        void *p = shelf_find(s, !strcmp(f->name, "maps") ? "map"
                              : !strcmp(f->name, "h_kept_in") ? "h_in" : f->name);
        const int nd = shape_dims(c, f->shape, dim);
        for (int d = 0; d < nd; d++) n *= dim[d];
        if (!p && !field_in(f))
            p = shelf_add(s, f->name, (size_t)n * store_bytes(f->store, as));
        if (!p && f->when != KCP_MAYBE) {
            fprintf(stderr, "kcp-bench: %s: no room or no input for %s\n", st->name, f->name);
            free(args);
            return NULL;
        }
        memcpy(args + f->at, &p, sizeof p);
    }
    return args;
}

static int prepare(const struct kcp_variant *v, char *args, void **room)
{
    struct kcp_call *c = (struct kcp_call *)args;
    *room = NULL;
    c->work_bytes = v->work ? v->work(args) : 0;
    if (c->work_bytes && cudaMalloc(room, c->work_bytes)) return KCP_NO_MEMORY;
    c->work = *room;
    return KCP_OK;
}

/* The chain that makes every stage's inputs: the newest variant that takes them. */
static int fill_chain(struct shelf *s, const struct bench *b)
{
    static const char *const chain[] = { "02_gate", "03_wy", "04_chunk", "05_affine",
        "09_chunk_backward", "11_merge_backward", "10_wy_backward" };
    for (size_t i = 0; i < sizeof chain / sizeof *chain; i++) {
        const struct kcp_stage *st = stage_find(chain[i]);
        const struct kcp_variant *all[64], *v = NULL;
        const int n = kcp_variants(st->name, NULL, all, 64);
        int e = KCP_NA;
        for (int j = n - 1; j >= 0 && e == KCP_NA; j--) {
            v = all[j];
            if (v->where != KCP_DEVICE || v->storage != KCP_BF16) continue;
            char *args = args_of(s, st, &b->call, KCP_BF16);
            void *room = NULL;
            e = args ? prepare(v, args, &room) : KCP_NO_MEMORY;
            if (!e) e = v->run(args);
            if (!e && cudaDeviceSynchronize()) e = KCP_CUDA;
            cudaFree(room), free(args);
        }
        if (e) return fprintf(stderr, "kcp-bench: %s: status %d\n", chain[i], e), e;
    }
    return KCP_OK;
}

static int has_pass(const struct kcp_stage *s)
{
    for (int i = 0; i < s->nfields; i++)
        if (s->fields[i].io == KCP_BOUT) return 1;
    return 0;
}

static void print_row(const struct bench *b, const struct kcp_stage *st,
                      const struct kcp_variant *v, const struct kcp_call *c,
                      const struct times *t, FILE *json)
{
    const double bytes = cost_bytes(st, c, v->storage), flops = cost_flops(st, c);
    const double floor_us = fmax(bytes / b->copy, flops / b->product) * 1e6;
    printf("%-18s%-9s%-22s%10.1f%10.1f%10.1f%9.0f%9.1f%8.1f", st->name,
           has_pass(st) ? (c->pass ? "backward" : "forward") : "", v->name, t->median, t->low,
           t->high, bytes / t->median / 1e3, flops / t->median / 1e6,
           100 * floor_us / t->median);
    double then = 0;
    if (b->against) then = recorded_us(b->against, st->name, v->name, c->pass);
    if (then > 0) printf("%9.3f", t->median / then);
    else if (b->against) printf("%9s", "-");
    printf("\n");
    if (json)
        fprintf(json, ",\n  {\"stage\":\"%s\",\"variant\":\"%s\",\"pass\":%d,\"us\":%.2f,"
                "\"us_p10\":%.2f,\"us_p90\":%.2f,\"bytes\":%.0f,\"flops\":%.0f}", st->name,
                v->name, c->pass, t->median, t->low, t->high, bytes, flops);
}

/* 08 fills a saved block; 13 reads the one that the same name's 08 has filled. */
static int save_forward(struct shelf *s, const struct kcp_variant *v,
                        const struct kcp_stage *st, char *args)
{
    struct kcp_forward *f = (void *)args;
    if (!strncmp(st->name, "08", 2)) {
        f->saved_bytes = kcp_saved_bytes(f);
        f->saved = shelf_add(s, "saved", f->saved_bytes);
        return f->saved ? KCP_OK : KCP_NO_MEMORY;
    }
    if (strncmp(st->name, "13", 2)) return KCP_NA;
    const struct kcp_variant *fw;
    if (!kcp_variants("08_forward", v->name, &fw, 1)) return KCP_NA;
    char *first = args_of(s, stage_find("08_forward"), (struct kcp_call *)args, v->storage);
    void *room = NULL;
    int e = first ? prepare(fw, first, &room) : KCP_NO_MEMORY;
    if (!e) e = save_forward(s, fw, stage_find("08_forward"), first);
    if (!e) e = fw->run(first);
    if (!e && cudaDeviceSynchronize()) e = KCP_CUDA;
    struct kcp_backward *k = (void *)args;
    k->saved = shelf_find(s, "saved");
    k->saved_bytes = e ? 0 : ((struct kcp_forward *)first)->saved_bytes;
    cudaFree(room), free(first);
    return e;
}

static int bench_variant(struct bench *b, struct shelf *s, const struct kcp_stage *st,
                         const struct kcp_variant *v, FILE *json)
{
    for (int pass = 0; pass <= has_pass(st); pass++) {
        struct kcp_call c = b->call;
        struct times t;
        void *room = NULL;
        c.pass = pass;
        if (!strncmp(st->name, "07", 2)) c.R = c.NS;
        char *args = args_of(s, st, &c, v->storage);
        int e = args ? prepare(v, args, &room) : KCP_NO_MEMORY;
        if (!e && st->ranks) e = save_forward(s, v, st, args);
        if (!e) e = time_calls(v->run, args, b->warmup, b->iters, &t);
        if (!e) print_row(b, st, v, &c, &t, json);
        else if (e != KCP_NA)
            printf("%-18s%-9s%-22s status %d\n", st->name, "", v->name, e);
        cudaFree(room), free(args);
        if (e == KCP_CUDA) return e;
    }
    return KCP_OK;
}

static int bench_all(struct bench *b, FILE *json)
{
    struct shelf s = { 0 };
    int e = fill_grid(&s, &b->call);
    if (!e) e = fill_inputs(&s, b);
    if (!e) e = fill_chain(&s, b);
    printf("%-18s%-9s%-22s%10s%10s%10s%9s%9s%8s\n", "stage", "pass", "variant", "us", "p10",
           "p90", "GB/s", "TFLOP/s", "% floor");
    if (b->against) printf("# last: as a multiple of the time in %s\n", b->against);
    for (int i = 0; i < kcp_nstages && !e; i++) {
        const struct kcp_stage *st = &kcp_stages[i];
        const struct kcp_variant *v[64];
        if (!bench_asked(b, st)) continue;
        int n = 0;
        const int all = kcp_variants(st->name, b->variant, v, 64);
        for (int j = 0; j < all; j++)
            if (v[j]->where == KCP_DEVICE && v[j]->storage == KCP_BF16) v[n++] = v[j];
        for (int j = b->newest && n ? n - 1 : 0; j < n && !e; j++)
            e = bench_variant(b, &s, st, v[j], json);
        fflush(stdout);
    }
    shelf_free(&s);
    return e;
}

static int body(struct kcp_comm *comm, void *arg)
{
    struct bench *b = arg;
    const struct kcp_call *c = &b->call;
    const char *why = "";
    char head[200];
    const int64_t cu[] = { 0, c->T };
    struct kcp_plan *plan;
    const int64_t L = c->NS > 1 ? (c->T + c->NS - 1) / c->NS : 0;
    int e = kcp_plan_make(&plan, 1, cu, 1, NULL, L, c->C, 4, &why);
    if (e) return bench_bad("plan", why, "a batch that can be cut");
    b->call.comm = comm, b->call.plan = plan, b->call.ops = device_memory()->mapops;
    FILE *json = b->json ? fopen(b->json, "w") : NULL;
    if (b->json && !json) return bench_bad("--json", b->json, "a file I can write");
    if (json)
        fprintf(json, "{%s,\"copy\":%.4g,\"product\":%.4g,\"rows\":[\n  {}",
                case_head(b, head, sizeof head), b->copy, b->product);
    e = bench_all(b, json);
    if (json) fprintf(json, "\n]}\n"), fclose(json);
    kcp_plan_free(plan);
    return e;
}

int main(int argc, char **argv)
{
    struct bench b = { .warmup = 20, .iters = 100 };
    const int status = bench_options(argc, argv, &b);
    if (status) return status < 0 ? 0 : status;
    if (b.against && !same_case(&b))
        return bench_bad("--against", b.against, "a record of this case");
    if (!device_memory()) {
        fprintf(stderr, "kcp-bench: no GPU here: nothing was timed\n");
        return 1;
    }
    if (measure_controls(&b)) return fprintf(stderr, "kcp-bench: no room for controls\n"), 1;
    printf("# copy %.2f TB/s, bf16 product %.0f TFLOP/s; T=%lld H=%d HV=%d K=%d V=%d C=%d"
           " segments=%d %s %s save=%s; %d warm-up, median of %d\n", b.copy / 1e12, b.product / 1e12,
           (long long)b.call.T, b.call.H, b.call.HV, b.call.K, b.call.V, b.call.C, b.call.NS,
           b.call.model ? "gdn" : "kda", regime_name[b.regime],
           b.call.save ? "all" : "recompute", b.warmup, b.iters);
    char why[200] = "";
    const int e = kcp_threads_run(1, body, &b, why, sizeof why);
    if (e) fprintf(stderr, "kcp-bench: %s\n", why);
    return e ? 1 : 0;
}
