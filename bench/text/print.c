/* print.c -- prints the results of make run as text.
 * Book: chapter 06 explains the plan. */
#include "text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RIBBON = 60, COLUMNS = 8 };

static char digit(int r)
{
    return "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"[r];
}

static const char *name_of(const struct text *x, int n)
{
    const size_t len = strlen(x->name[n]);
    return x->name[n] + (len > 24 ? len - 24 : 0);
}

static void print_rank(FILE *o, const struct finding *f, int r)
{
    const struct kcp_plan *p = f->many->plan;
    const struct kcp_context *c = &p->ctx[r];
    fprintf(o, "  rank %-2d %5d..%-5d", r, (int)c->begin, (int)c->end);
    for (int s = 0; s < c->NS; s++) {
        const struct kcp_segment *g = &p->seg[c->seg0 + s];
        const int64_t at = p->cu_seqlens[g->n];
        fprintf(o, "%s %s %d..%d", s ? "," : "", name_of(f->text, g->n),
                (int)(g->begin - at), (int)(g->end - at));
    }
    if (!c->NS) fprintf(o, " no tokens");
    else if (c->pre_num_ranks)
        fprintf(o, "; state from %d rank%s, %d halo rows", c->pre_num_ranks,
                c->pre_num_ranks > 1 ? "s" : "", c->pre_num_conv_tokens < TAPS - 1
                ? (int)c->pre_num_conv_tokens : TAPS - 1);
    fputc('\n', o);
}

static void print_plan(FILE *o, const struct finding *f)
{
    const struct text *x = f->text;
    const struct kcp_plan *p = f->many->plan;
    fprintf(o, "KCP  a KDA layer, forward and backward, on %d bytes of text, "
            "%d rank%s\n", (int)x->T, f->R, f->R > 1 ? "s" : "");
    fprintf(o, "     H %d, HV %d, K %d, V %d, chunk %d, double\n", HEADS,
            VALUE_HEADS, KEY, VALUE, CHUNK);
    fprintf(o, "\nPlan  (one line per sequence; each digit or letter is a rank)\n");
    for (int n = 0; n < x->N; n++) {
        fprintf(o, "  %-24s ", name_of(x, n));
        for (int i = 0; i < RIBBON; i++) {
            const int64_t t = i * x->T / RIBBON;
            int r = 0;
            while (p->cuts[r + 1] <= t) r++;
            fputc(t >= x->cu[n] && t < x->cu[n + 1] ? digit(r) : '.', o);
        }
        fprintf(o, "  %d of %d bytes\n", (int)(x->cu[n + 1] - x->cu[n]),
                (int)x->size[n]);
    }
    for (int r = 0; r < f->R; r++) print_rank(o, f, r);
}

static void print_stages(FILE *o, const struct finding *f)
{
    const struct kcp_plan *p = f->many->plan;
    const int shown = f->R < COLUMNS ? f->R : COLUMNS;
    fprintf(o, "\nStages  (milliseconds of CPU time%s)\n  %-22s",
            shown < f->R ? "; the first 8 ranks" : "", "");
    for (int r = 0; r < shown; r++) fprintf(o, "   rank %-2d", r);
    fputc('\n', o);
    for (int m = 0; m <= MARKS; m++) {              /* MARKS: sums */
        fprintf(o, "  %-22s", m < MARKS ? mark_name[m] : "all");
        for (int r = 0; r < shown; r++) {
            double seconds = 0;
            for (int i = 0; i < MARKS; i++)
                if (m == MARKS || i == m) seconds += f->many->lane[r].busy[i];
            fprintf(o, " %8.2f", 1e3 * seconds);
        }
        fputc('\n', o);
    }
    fprintf(o, "  %-22s", "state alive, %");
    for (int r = 0; r < shown; r++) {
        const struct kcp_context *c = &p->ctx[r];
        double s = 0;
        for (int n = 0; n < VALUE_HEADS && c->NS; n++)
            s += f->alive[c->seg0][n] * f->alive[c->seg0][n] / VALUE_HEADS;
        c->NS ? fprintf(o, " %8.2f", 100 * sqrt(s)) : fprintf(o, " %8s", "-");
    }
    fprintf(o, "\n"
            "  state alive: |M|_F / sqrt(K) of M, the map of a rank's first segment.\n"
            "  This share (RMS over heads) of a state remains at the segment's end.\n");
    if (f->far_seq >= 0)
        fprintf(o, "  %s: %.2f %% of the state at its first cut remains at its end "
                "(on rank %d).\n",
                name_of(f->text, f->far_seq), 100 * f->far, f->far_rank);
}

static void print_forms(FILE *o, const struct finding *f)
{
    fprintf(o, "\nExchange  (states and maps; forward plus backward, sum over ranks)\n"
            "  %-12s %12s %12s %9s %9s   %s\n", "form", "bytes", "formula", "messages",
            "gathers", "error");
    for (int i = 0; i < KCP_FORMS; i++)
        fprintf(o, "  %-12s %12lld %12lld %9lld %9lld   %.1e\n", kcp_form_names[i],
                (long long)f->form[i].bytes, (long long)f->formula[i].bytes,
                (long long)f->form[i].messages, (long long)f->form[i].collectives,
                f->form_err[i]);
}

static void print_errors(FILE *o, const struct finding *f)
{
    fprintf(o, "\nErrors  (relative RMS, worst rank and head, against two references)\n"
            "  %-12s %9s %10s   %-12s %9s %10s\n", "", "one rank", "recurrence", "",
            "one rank", "recurrence");
    for (int i = 0; i < CHECKED / 2; i++)
        for (int j = i; j < CHECKED; j += CHECKED / 2)
            fprintf(o, "  %-12s %9.1e %10.1e%s", checked_name[j], f->error_one[j],
                    f->error_step[j], j == i ? " " : "\n");
}

void print_report(FILE *o, const struct finding *f)
{
    print_plan(o, f);
    print_stages(o, f);
    print_forms(o, f);
    print_errors(o, f);
}

void print_training(FILE *o, const struct finding *f)
{
    double apart = 0;
    if (!f->steps) return;
    fprintf(o, "\nTraining  (loss in nats per byte, by gradient descent)\n  step ");
    const int every = (f->steps + 7) / 8;
    for (int i = 0; i <= f->steps; i += every) fprintf(o, " %7d", i);
    for (int w = 0; w < 2; w++) {
        fprintf(o, "\n  R = %-2d", w ? 1 : f->R);
        for (int i = 0; i <= f->steps; i += every)
            fprintf(o, " %7.4f", f->loss[w][i]);
    }
    for (int i = 0; i <= f->steps; i++)
        apart = fmax(apart, fabs(f->loss[0][i] - f->loss[1][i]));
    fprintf(o, "\n  The losses of the two runs differ by at most %.1e.\n", apart);
    fprintf(o, "  ms per step: %.2f on %d ranks, %.2f on one rank.\n", f->ms[0], f->R,
            f->ms[1]);
}

void close_line(const struct finding *f, char *buf, size_t n)
{
    char alive[120] = "";
    double forms = 0;
    for (int i = 0; i < KCP_FORMS; i++) forms = fmax(forms, f->form_err[i]);
    if (f->far_seq >= 0)
        snprintf(alive, sizeof alive, "; %.2g %% of the state at the first cut "
                 "remains at its sequence's end%s", 100 * f->far,
                 f->far < 0.01 ? ", too little for a test" : "");
    const double one = fmax(f->worst_one, forms);
    const char *s = f->R > 1 ? "s" : "";
    if (f->pass)
        snprintf(buf, n, "PASS: forward and backward over %d rank%s "
                 "agree with one rank within %.1e in every form of the exchange, "
                 "and with the token recurrence within %.1e (limit %.0e)%s.", f->R, s,
                 one, f->worst_step, f->limit, alive);
    else
        snprintf(buf, n, "FAIL: the results on %d rank%s differ from those on one rank "
                 "by %.1e in the worst form of the exchange, "
                 "and from the token recurrence by %.1e (limit %.0e)"
                 "%s%s.", f->R, s, one, f->worst_step, f->limit,
                 f->counted ? "" : "; the traffic differs from the formulas", alive);
}
