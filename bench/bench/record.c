/* record.c -- writes the rows of --tsv.
 * Book: chapter 18.
 * The first line names the columns. A cell is empty if the column does not apply to the
 * row. */
#include "bench.h"
#include <stdarg.h>

/* One line of the table. put() writes a cell or, if has_names is 1, a column's name. */
struct line { FILE *to; int has_names, n; };

static void put(struct line *x, const char *name, const char *format, ...)
{
    va_list more;
    if (x->n++) fputc('\t', x->to);
    if (x->has_names) {
        fputs(name, x->to);
        return;
    }
    va_start(more, format);
    vfprintf(x->to, format, more);
    va_end(more);
}

const char *save_word(const struct bench *b)
{
    static const char *const words[] = { "recompute", "all" };
    return b->unsaved ? "none" : words[b->call.save];
}

static const char *walk_word(const struct kcp_call *c)
{
    if (c->walk == KCP_SEQUENTIAL) return "sequential";
    return c->walk == KCP_BLELLOCH ? "scan" : "";
}

/* Writes regime and, unless they are the usual ones, the gate's form and the types. */
static void gate_cell(struct line *to, const struct bench *b)
{
    const struct kcp_call *c = &b->call;
    char form[24] = "", q[12] = "", g[12] = "", beta[12] = "", deep[32] = "";
    if (c->gate != KCP_GATE_BOUNDED)
        snprintf(form, sizeof form, " %s", gate_name[c->gate]);
    if (c->q_type) snprintf(q, sizeof q, " q=%s", kcp_type_name(c->q_type));
    if (c->g_type) snprintf(g, sizeof g, " g=%s", kcp_type_name(c->g_type));
    if (c->beta_type)
        snprintf(beta, sizeof beta, " beta=%s", kcp_type_name(c->beta_type));
    if (b->deep) snprintf(deep, sizeof deep, " deep=%dx%d", b->deep, b->deep_channels);
    put(to, "gate", "%s%s%s%s%s%s", regime_name[b->regime], form, q, g, beta, deep);
}

/* Writes the cells that define the case. Rows of the same case can be compared. */
static void case_cells(struct line *to, const struct bench *b)
{
    const struct kcp_call *c = &b->call;
    put(to, "model", "%s", model_name[c->model]);
    gate_cell(to, b);
    put(to, "T", "%lld", (long long)c->T);
    put(to, "H", "%d", c->H);
    put(to, "HV", "%d", c->HV);
    put(to, "K", "%d", c->K);
    put(to, "V", "%d", c->V);
    put(to, "C", "%d", c->C);
    put(to, "sequences", "%d", c->N);
    put(to, "segments", "%d", c->NS);
    put(to, "ranks", "%d", b->ranks ? b->ranks : 1);
    put(to, "save", "%s", save_word(b));
    put(to, "walk", "%s", walk_word(c));
    put(to, "reuse_M", "%s", c->reuse_M ? "1" : "");
    put(to, "lengths", "%s", b->lengths ? b->lengths : "");
}

/* Writes the controls of this run: a copy, a matrix product and an all_gather. */
static void control_cells(struct line *to, const struct bench *b)
{
    put(to, "copy", "%.4g", b->copy);
    put(to, "product", "%.4g", b->product);
    put(to, "gather_bytes", b->ranks > 1 ? "%zu" : "", b->gather_bytes);
    put(to, "gather_us", b->ranks > 1 ? "%.2f" : "", b->gather_us);
}

static const char *form_word(const struct runner *x, const struct kcp_call *c)
{
    return x->form ? x->form : kcp_form_names[c->form];
}

/* Writes the cells that name a row: stage, variant, pass and, for layers on ranks, the
 * form (algorithm) of the exchange. */
static void name_cells(struct line *to, const struct runner *x,
                       const struct kcp_stage *st, const struct kcp_variant *v,
                       const struct kcp_call *c)
{
    put(to, "stage", "%s", st->name);
    put(to, "variant", "%s", v->name);
    put(to, "path", "");                  /* not known here */
    put(to, "form", "%s", x->b->ranks ? form_word(x, c) : "");
    put(to, "head_parts", x->b->ranks ? "1" : "");        /* former column */
    put(to, "pass", "%d", c->pass);
}

static void time_cells(struct line *to, const struct runner *x, const struct times *t,
                       double bytes, double flops, const struct judged *j)
{
    const char *part = x->b->ranks ? "%.2f" : "";
    const int known = j->outcome != NA;
    put(to, "us", "%.2f", t->median);
    put(to, "us_p10", "%.2f", t->low);
    put(to, "us_p90", "%.2f", t->high);
    put(to, "bytes", "%.0f", bytes);
    put(to, "flops", "%.0f", flops);
    put(to, "work", "%zu", x->work);
    put(to, "saved", "%zu", x->saved);
    put(to, "front", part, t->part[FRONT]);
    put(to, "sum", part, t->part[SUM]);
    put(to, "exchange", part, t->part[EXCHANGE]);
    put(to, "main", part, t->part[MAIN]);
    put(to, "replay", t->replay > 0 ? "%.2f" : "", t->replay);
    put(to, "unsent", t->unsent > 0 ? "%.2f" : "", t->unsent);
    put(to, "replay_beside", t->replay_beside > 0 ? "%.2f" : "", t->replay_beside);
    put(to, "unsent_beside", t->unsent_beside > 0 ? "%.2f" : "", t->unsent_beside);
    put(to, "peer", "");
    put(to, "verdict", "%s", known ? outcome_name[j->outcome] : "");
    put(to, "worst", "%s", known ? j->worst.field : "");
    put(to, "error", known ? "%.2e" : "", j->worst.err);
    put(to, "allowed", known ? "%.2e" : "", j->worst.tol);
}

void tsv_row(const struct runner *x, const struct kcp_stage *st,
             const struct kcp_variant *v, const struct kcp_call *c,
             const struct times *t, double bytes, double flops, const struct judged *j)
{
    for (int names = x->b->rows++ == 0; names >= 0; names--) {
        struct line line = { .to = x->tsv, .has_names = names };
        name_cells(&line, x, st, v, c);
        time_cells(&line, x, t, bytes, flops, j);
        case_cells(&line, x->b);
        control_cells(&line, x->b);
        fputc('\n', x->tsv);
    }
    fflush(x->tsv);
}
