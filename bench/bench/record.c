/* record.c -- rows of a TSV: written, and found in an earlier one.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh.  Next: bench/records.py.
 * The first line names the columns. Readers find a column by its name; a missing column
 * is empty.
 */
#include "record.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void put(struct cells *to, const char *name, const char *format, ...)
{
    struct cell *c = &to->at[to->n++];
    va_list more;
    c->name = name;
    va_start(more, format);
    vsnprintf(c->text, sizeof c->text, format, more);
    va_end(more);
}

const char *save_word(const struct bench *b)
{
    static const char *const words[] = { "recompute", "all", "light" };
    return b->unsaved ? "none" : words[b->call.save];
}

static const char *walk_word(const struct kcp_call *c)
{
    if (c->walk == KCP_SEQUENTIAL) return "sequential";
    return c->walk == KCP_BLELLOCH ? "scan" : "";
}

/* Two runs can be compared if these are equal. */
static void case_cells(struct cells *to, const struct bench *b)
{
    const struct kcp_call *c = &b->call;
    put(to, "model", "%s", model_name[c->model]);
    put(to, "gate", "%s", regime_name[b->regime]);
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
    put(to, "cuts", "%s", b->cuts ? b->cuts : "");
    put(to, "lengths", "%s", b->lengths ? b->lengths : "");
}

/* Rates of the machine, measured in the same run. */
static void control_cells(struct cells *to, const struct bench *b)
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

void row_cells(struct cells *row, const struct runner *x, const struct kcp_stage *st,
               const struct kcp_variant *v, const struct kcp_call *c)
{
    row->n = 0;
    put(row, "stage", "%s", st->name);
    put(row, "variant", "%s", v->name);
    put(row, "path", "");                 /* until a variant says which it took */
    put(row, "form", "%s", x->b->ranks ? form_word(x, c) : "");
    put(row, "head_parts", x->b->ranks ? "%d" : "", x->head_parts);
    put(row, "pass", "%d", c->pass);
}

void time_cells(struct cells *row, const struct runner *x, const struct times *t,
                double bytes, double flops, const struct judged *j)
{
    const char *part = x->b->ranks ? "%.2f" : "";
    put(row, "us", "%.2f", t->median);
    put(row, "us_p10", "%.2f", t->low);
    put(row, "us_p90", "%.2f", t->high);
    put(row, "bytes", "%.0f", bytes);
    put(row, "flops", "%.0f", flops);
    put(row, "work", "%zu", x->work);
    put(row, "saved", "%zu", x->saved);
    put(row, "front", part, t->part[FRONT]);
    put(row, "sum", part, t->part[SUM]);
    put(row, "exchange", part, t->part[EXCHANGE]);
    put(row, "main", part, t->part[MAIN]);
    put(row, "replay", t->replay > 0 ? "%.2f" : "", t->replay);
    put(row, "unsent", t->unsent > 0 ? "%.2f" : "", t->unsent);
    put(row, "replay_beside", t->replay_beside > 0 ? "%.2f" : "",
        t->replay_beside);
    put(row, "unsent_beside", t->unsent_beside > 0 ? "%.2f" : "",
        t->unsent_beside);
    put(row, "peer", "");
    const int known = j->outcome != NA;
    put(row, "verdict", "%s", known ? outcome_name[j->outcome] : "");
    put(row, "worst", "%s", known ? j->worst.field : "");
    put(row, "error", known ? "%.2e" : "", j->worst.err);
    put(row, "allowed", known ? "%.2e" : "", j->worst.tol);
}

static void tsv_line(FILE *tsv, const struct cells *c, int names)
{
    for (int i = 0; i < c->n; i++)
        fprintf(tsv, "%s%s", names ? c->at[i].name : c->at[i].text,
                i + 1 < c->n ? "\t" : "\n");
}

void tsv_row(const struct runner *x, const struct cells *row)
{
    struct cells all = *row;
    case_cells(&all, x->b);
    control_cells(&all, x->b);
    if (x->b->rows++ == 0) tsv_line(x->tsv, &all, 1);
    tsv_line(x->tsv, &all, 0);
    fflush(x->tsv);
}

/* Cuts a line at its tabs; returns the number of pieces, at most max. */
static int pieces(char *line, char **piece, int max)
{
    int n = 0;
    line[strcspn(line, "\r\n")] = 0;
    while (n < max) {
        piece[n++] = line;
        char *tab = strchr(line, '\t');
        if (!tab) return n;
        *tab = 0;
        line = tab + 1;
    }
    return n;
}

enum { COLUMNS = 128, LINE = 8192 };

static const char *named(char **head, char **row, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(head[i], name)) return row[i];
    return "";
}

/* Does this line have the cells of want? */
static int is_row(char **head, char **row, int n, const struct cells *want)
{
    for (int i = 0; i < want->n; i++)
        if (strcmp(named(head, row, n, want->at[i].name), want->at[i].text)) return 0;
    return 1;
}

/* The median of the last row with the cells of want; 0: there is none. */
static double find_us(const char *path, const struct cells *want)
{
    static char first[LINE], line[LINE];
    char *head[COLUMNS], *row[COLUMNS];
    struct stat st;
    double us = 0;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return 0;    /* a pipe could block */
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    const int n = fgets(first, sizeof first, f) ? pieces(first, head, COLUMNS) : 0;
    while (fgets(line, sizeof line, f)) {
        if (pieces(line, row, COLUMNS) != n || !is_row(head, row, n, want)) continue;
        us = strtod(named(head, row, n, "us"), NULL);
    }
    fclose(f);
    return us;
}

int same_case(const struct bench *b)
{
    struct cells want = { 0 };
    case_cells(&want, b);
    return find_us(b->against, &want) > 0;
}

double recorded_us(const struct bench *b, const struct cells *row)
{
    struct cells want = { 0 };
    for (int i = 0; i < row->n; i++)
        if (strcmp(row->at[i].name, "path")) want.at[want.n++] = row->at[i];
    case_cells(&want, b);
    return find_us(b->against, &want);
}
