/* record.c -- records: written as TSV (what is kept) or JSON, and rows of earlier ones.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh.  Next: bench/record.sh.
 * A TSV opens with the names of its columns, and nothing is found by its position: a
 * reader asks for columns by name, and takes one that is not there as empty.
 */
#include "record.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NUMBER, WORD };

static void put(struct cells *to, int is_word, const char *name,
                const char *format, ...)
{
    struct cell *c = &to->at[to->n++];
    va_list more;
    c->name = name;
    c->is_word = is_word;
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

/* What two runs must share to be compared. */
static void case_cells(struct cells *to, const struct bench *b)
{
    const struct kcp_call *c = &b->call;
    put(to, WORD, "model", "%s", model_name[c->model]);
    put(to, WORD, "gate", "%s", regime_name[b->regime]);
    put(to, NUMBER, "T", "%lld", (long long)c->T);
    put(to, NUMBER, "H", "%d", c->H);
    put(to, NUMBER, "HV", "%d", c->HV);
    put(to, NUMBER, "K", "%d", c->K);
    put(to, NUMBER, "V", "%d", c->V);
    put(to, NUMBER, "C", "%d", c->C);
    put(to, NUMBER, "sequences", "%d", c->N);
    put(to, NUMBER, "segments", "%d", c->NS);
    put(to, NUMBER, "ranks", "%d", b->ranks ? b->ranks : 1);
    put(to, WORD, "save", "%s", save_word(b));
    put(to, WORD, "walk", "%s", walk_word(c));
    put(to, NUMBER, "reuse_M", "%s", c->reuse_M ? "1" : "");
    put(to, WORD, "cuts", "%s", b->cuts ? b->cuts : "");
    put(to, WORD, "lengths", "%s", b->lengths ? b->lengths : "");
}

/* The machine's own rates in this run, beside which the times stand. */
static void control_cells(struct cells *to, const struct bench *b)
{
    put(to, NUMBER, "copy", "%.4g", b->copy);
    put(to, NUMBER, "product", "%.4g", b->product);
    put(to, NUMBER, "gather_bytes", b->ranks > 1 ? "%zu" : "", b->gather_bytes);
    put(to, NUMBER, "gather_us", b->ranks > 1 ? "%.2f" : "", b->gather_us);
}

static const char *form_word(const struct runner *x, const struct kcp_call *c)
{
    return x->form ? x->form : kcp_form_names[c->form];
}

void row_cells(struct cells *row, const struct runner *x, const struct kcp_stage *st,
               const struct kcp_variant *v, const struct kcp_call *c)
{
    row->n = 0;
    put(row, WORD, "stage", "%s", st->name);
    put(row, WORD, "variant", "%s", v->name);
    put(row, WORD, "path", "");                 /* until a variant says which it took */
    put(row, WORD, "form", "%s", x->b->ranks ? form_word(x, c) : "");
    put(row, NUMBER, "head_parts", x->b->ranks ? "%d" : "", x->head_parts);
    put(row, NUMBER, "pass", "%d", c->pass);
}

void time_cells(struct cells *row, const struct runner *x, const struct times *t,
                double bytes, double flops, const struct judged *j)
{
    const char *part = x->b->ranks ? "%.2f" : "";
    put(row, NUMBER, "us", "%.2f", t->median);
    put(row, NUMBER, "us_p10", "%.2f", t->low);
    put(row, NUMBER, "us_p90", "%.2f", t->high);
    put(row, NUMBER, "bytes", "%.0f", bytes);
    put(row, NUMBER, "flops", "%.0f", flops);
    put(row, NUMBER, "work", "%zu", x->work);
    put(row, NUMBER, "saved", "%zu", x->saved);
    put(row, NUMBER, "front", part, t->part[FRONT]);
    put(row, NUMBER, "sum", part, t->part[SUM]);
    put(row, NUMBER, "exchange", part, t->part[EXCHANGE]);
    put(row, NUMBER, "main", part, t->part[MAIN]);
    put(row, NUMBER, "replay", t->replay > 0 ? "%.2f" : "", t->replay);
    put(row, NUMBER, "unsent", t->unsent > 0 ? "%.2f" : "", t->unsent);
    put(row, NUMBER, "replay_beside", t->replay_beside > 0 ? "%.2f" : "",
        t->replay_beside);
    put(row, NUMBER, "unsent_beside", t->unsent_beside > 0 ? "%.2f" : "",
        t->unsent_beside);
    put(row, WORD, "peer", "");
    const int known = j->outcome != NA;
    put(row, WORD, "verdict", "%s", known ? outcome_name[j->outcome] : "");
    put(row, WORD, "worst", "%s", known ? j->worst.field : "");
    put(row, NUMBER, "error", known ? "%.2e" : "", j->worst.err);
    put(row, NUMBER, "allowed", known ? "%.2e" : "", j->worst.tol);
}

static void json_cells(FILE *json, const struct cells *c)
{
    for (int i = 0, said = 0; i < c->n; i++) {
        const char *quote = c->at[i].is_word ? "\"" : "";
        if (!c->at[i].text[0]) continue;
        fprintf(json, "%s\"%s\":%s%s%s", said++ ? "," : "", c->at[i].name, quote,
                c->at[i].text, quote);
    }
}

int json_open(struct record_file *json, const struct bench *b)
{
    struct cells head = { 0 };
    if (record_file_open(json, b->json)) return 1;
    case_cells(&head, b);
    control_cells(&head, b);
    fprintf(json->at, "{");
    json_cells(json->at, &head);
    fprintf(json->at, ",\"rows\":[\n  {}");
    return 0;
}

void json_row(struct record_file *json, const struct cells *row)
{
    fprintf(json->at, ",\n  {");
    json_cells(json->at, row);
    fprintf(json->at, "}");
    fflush(json->at);
    json->rows++;
}

int json_close(struct record_file *json, int is_whole)
{
    fprintf(json->at, "\n]}\n");
    return record_file_close(json, is_whole);
}

static void tsv_line(FILE *tsv, const struct cells *c, int names)
{
    for (int i = 0; i < c->n; i++)
        fprintf(tsv, "%s%s", names ? c->at[i].name : c->at[i].text,
                i + 1 < c->n ? "\t" : "\n");
}

void tsv_row(struct record_file *tsv, const struct bench *b, const struct cells *row)
{
    struct cells all = *row;
    case_cells(&all, b);
    control_cells(&all, b);
    if (tsv->rows++ == 0) tsv_line(tsv->at, &all, 1);
    tsv_line(tsv->at, &all, 0);
    fflush(tsv->at);
}

/* Cuts a line at its tabs; its pieces, at most max. */
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

/* Is this line of the file all that want says? */
static int is_row(char **head, char **row, int n, const struct cells *want)
{
    for (int i = 0; i < want->n; i++)
        if (strcmp(named(head, row, n, want->at[i].name), want->at[i].text)) return 0;
    return 1;
}

/* The last row that says what want says: its median; 0: there is none. */
static double find_us(const char *path, const struct cells *want)
{
    static char first[LINE], line[LINE];
    char *head[COLUMNS], *row[COLUMNS];
    struct stat st;
    double us = 0;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return 0;      /* a pipe would wait */
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
