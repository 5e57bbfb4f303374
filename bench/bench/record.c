/* bench_record.c -- what is printed and recorded of a case, and rows of earlier ones.
 *
 * Book: chapter 18.  Checked by: a record of another case is refused.  Next: record.sh.
 */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The head line of a record, from its sizes to its gates. */
static const char *case_head(const struct bench *b, char *s, size_t n)
{
    const struct kcp_call *c = &b->call;
    const char *walk = c->walk == KCP_SEQUENTIAL ? ",\"walk\":\"sequential\""
                     : c->walk == KCP_BLELLOCH ? ",\"walk\":\"scan\"" : "";
    char packed[32] = "";
    if (c->N > 1) snprintf(packed, sizeof packed, "\"sequences\":%d,", c->N);
    snprintf(s, n, "\"T\":%lld,\"H\":%d,\"HV\":%d,\"K\":%d,\"V\":%d,\"C\":%d,%s"
             "\"segments\":%d,\"ranks\":%d,\"model\":\"%s\",\"gate\":\"%s\","
             "\"save\":\"%s\"%s", (long long)c->T, c->H, c->HV, c->K, c->V, c->C,
             packed, c->NS, b->ranks ? b->ranks : 1, model_name[c->model],
             regime_name[b->regime],
             b->unsaved ? "none" : c->save ? "all" : "recompute", walk);
    return s;
}

FILE *record_open(const struct bench *b)
{
    char head[300];
    FILE *f = fopen(b->json, "w");
    if (!f) return NULL;
    fprintf(f, "{%s,\"copy\":%.4g,\"product\":%.4g", case_head(b, head, sizeof head),
            b->copy, b->product);
    if (b->ranks > 1)
        fprintf(f, ",\"gather_bytes\":%zu,\"gather_us\":%.2f", b->gather_bytes,
                b->gather_us);
    fprintf(f, ",\"rows\":[\n  {}");
    return f;
}

int record_close(FILE *json)
{
    fprintf(json, "\n]}\n");
    const int lost = ferror(json);
    return fclose(json) || lost;
}

int same_case(const struct bench *b)
{
    char head[512], want[300];
    FILE *f = fopen(b->against, "r");
    if (!f) return 0;
    const int got = fgets(head, sizeof head, f) != NULL;
    fclose(f);
    return got && strstr(head, case_head(b, want, sizeof want));
}

/* What names a row: of whole layers over ranks also the form and the heads' parts. */
static const char *row_key(const struct runner *x, const struct kcp_stage *st,
                           const struct kcp_variant *v, const struct kcp_call *c,
                           char *s, size_t n)
{
    char form[60] = "";
    if (x->b->ranks)
        snprintf(form, sizeof form, "\"form\":\"%s\",\"head_parts\":%d,",
                 form_name[c->form], x->head_parts);
    snprintf(s, n, "\"stage\":\"%s\",\"variant\":\"%s\",%s\"pass\":%d,\"us\":",
             st->name, v->name, form, c->pass);
    return s;
}

/* The median of a row of --against; 0 if it is not there. */
static double recorded_us(const char *file, const char *key)
{
    char line[1024];
    double us = 0;
    FILE *f = fopen(file, "r");
    while (f && us == 0 && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, key);
        if (at) us = strtod(at + strlen(key), NULL);
    }
    if (f) fclose(f);
    return us;
}

int has_pass(const struct kcp_stage *s)
{
    for (int i = 0; i < s->nfields; i++)
        if (s->fields[i].io == KCP_BOUT) return 1;
    return 0;
}

void print_heads(const struct runner *x)
{
    const struct bench *b = x->b;
    if (b->ranks > 1) {
        const double us = b->gather_us, bytes = (double)b->gather_bytes * b->ranks;
        printf("# control: all_gather over %s, %zu bytes a rank: %.1f us, algbw %.1f"
               " GB/s, busbw %.1f GB/s\n", x->world->backend, b->gather_bytes, us,
               bytes / us / 1e3, bytes / us / 1e3 * (b->ranks - 1) / b->ranks);
    }
    if (b->ranks)
        printf("# us of the slowest of %d ranks; front, sum, exchange and main are"
               " parts of time\n%-12s%-16s%-11s%6s%10s%9s%9s%9s%9s%9s%9s%9s%8s",
               b->ranks, "# stage", "variant", "form", "parts", "time", "p10", "p90",
               "front", "sum", "exchange", "main", "TFLOP/s", "% floor");
    else
        printf("%-18s%-9s%-22s%10s%10s%10s%9s%9s%8s", "stage", "pass", "variant", "us",
               "p10", "p90", "GB/s", "TFLOP/s", "% floor");
    printf("%s\n", b->against ? "   / then" : "");
    if (b->against) printf("# last: as a multiple of the time in %s\n", b->against);
}

static void record_row(const struct runner *x, const char *key, const struct times *t,
                       double bytes, double flops)
{
    fprintf(x->json, ",\n  {%s%.2f,\"us_p10\":%.2f,\"us_p90\":%.2f,\"bytes\":%.0f,"
            "\"flops\":%.0f,\"work\":%zu,\"saved\":%zu", key, t->median, t->low,
            t->high, bytes, flops, x->work, x->saved);
    if (x->b->ranks)
        fprintf(x->json, ",\"ranks\":%d,\"front\":%.2f,\"sum\":%.2f,\"exchange\":%.2f,"
                "\"main\":%.2f", x->b->ranks, t->part[FRONT], t->part[SUM],
                t->part[EXCHANGE], t->part[MAIN]);
    fprintf(x->json, "}");
    fflush(x->json);
}

void print_row(const struct runner *x, const struct kcp_stage *st,
               const struct kcp_variant *v, const struct kcp_call *c,
               const struct times *t)
{
    const struct bench *b = x->b;
    const double bytes = cost_bytes(st, c, v->storage), flops = cost_flops(st, c);
    const double floor_us = fmax(bytes / b->copy, flops / b->product) * 1e6;
    const double share = 100 * floor_us / t->median, rate = flops / t->median / 1e6;
    char key[200];
    if (x->world->r) return;
    row_key(x, st, v, c, key, sizeof key);
    if (b->ranks)
        printf("%-12s%-16s%-11s%6d%10.1f%9.1f%9.1f%9.1f%9.1f%9.1f%9.1f%9.1f%8.1f",
               st->name, v->name, form_name[c->form], x->head_parts, t->median, t->low,
               t->high, t->part[FRONT], t->part[SUM], t->part[EXCHANGE], t->part[MAIN],
               rate, share);
    else
        printf("%-18s%-9s%-22s%10.1f%10.1f%10.1f%9.0f%9.1f%8.1f", st->name,
               has_pass(st) ? (c->pass ? "backward" : "forward") : "", v->name,
               t->median, t->low, t->high, bytes / t->median / 1e3, rate, share);
    const double then = b->against ? recorded_us(b->against, key) : 0;
    if (then > 0) printf("%9.3f", t->median / then);
    else if (b->against) printf("%9s", "-");
    printf("\n");
    if (x->json) record_row(x, key, t, bytes, flops);
}
