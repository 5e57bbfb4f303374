/* report.c -- writes the answer: maps, messages, outputs, errors and the checks.
 * Book: page "compute". */
#include "page.h"

#include <math.h>
#include <string.h>

enum { K = PAGE_K, V = PAGE_V, CHECKS = 6, NONE = 7 };
#define LIMIT 1e-9                  /* of the largest value of the correct tensor */

/* Check c compares tensors of the run with those of the run without the mutant or, if
 * `stage` is NULL, with the recurrence. */
static const struct {
    const char *what;
    int pass;
    struct { const char *stage, *name; } of[8];
} check[CHECKS] = {
    { "02, 03: gates and factors of the chunks", KCP_FORWARD,
      { { "02", "G" }, { "02", "beta" }, { "03", "Aqk" }, { "03", "A" }, { "03", "u" },
        { "03", "w" }, { "03", "kg" }, { "03", "qg" } } },
    { "05: the maps", KCP_FORWARD, { { "05", "map" } } },
    { "07: the state at the start of each segment", KCP_FORWARD, { { "04", "h_in" } } },
    { "08: o and ht, against the recurrence", KCP_FORWARD, { { NULL, NULL } } },
    { "11: the maps of backward, and dS at the end of each segment", KCP_BACKWARD,
      { { "11", "dmap" }, { "09", "dh_out" } } },
    { "13: the gradients, against the adjoint", KCP_BACKWARD, { { NULL, NULL } } } };

/* Returns the largest difference, or infinity if a number is not finite. */
static double difference(const double *x, const double *correct, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(x[i] - correct[i]);
        if (!isfinite(d)) return INFINITY;
        worst = d > worst ? d : worst;
    }
    return worst;
}

/* The results, in the order of the table. Rows of ht and dh0 are sequences. */
enum { RESULTS = 8 };
static const char *const result_name[RESULTS] = { "o", "ht", "dq", "dk", "dv", "dg",
                                                  "dbeta", "dh0" };
static double *result(struct results *y, int i, int *row)
{
    const int rows[] = { V, K * V, K, K, V, pick.KG, 1, K * V };
    double *at[] = { y->o, y->ht, y->dq, y->dk, y->dv, y->dg, y->dbeta, y->dh0 };
    *row = rows[i];
    return at[i];
}

static double largest_of(const double *x, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fabs(x[i]) > largest ? fabs(x[i]) : largest;
    return largest > 0 ? largest : 1;
}

/* Returns the largest difference in the rows that rank r writes, divided by the largest
 * correct value of all rows. */
static double result_error(struct results *y, int i, int r)
{
    int row;
    const double *x = result(y, i, &row), *z = result(&truth, i, &row);
    const struct kcp_plan *p = pick.plan;
    const int by_sequence = i == 1 || i == RESULTS - 1;
    const int *owner = i == 1 ? p->ht_rank : p->h0_rank;
    const int64_t from = by_sequence ? 0 : p->ctx[r].begin;
    const int64_t to = by_sequence ? p->N : p->ctx[r].end;
    double worst = 0;
    for (int64_t j = from; j < to; j++) {
        const int64_t at = (by_sequence ? j : kcp_plan_token(p, j)) * row;
        if (!by_sequence || owner[j] == r)
            worst = fmax(worst, difference(x + at, z + at, row));
    }
    return worst / largest_of(z, (by_sequence ? p->N : pick.T) * (int64_t)row);
}

static double check_error(int c, int r)
{
    double worst = 0;
    int64_t n, m;
    for (int i = 0; i < RESULTS && !check[c].of[0].stage; i++)
        if ((i < 2) == (check[c].pass == KCP_FORWARD))
            worst = fmax(worst, result_error(&got[1], i, r));
    for (int i = 0; i < 8 && check[c].of[i].stage; i++) {
        const char *stage = check[c].of[i].stage, *name = check[c].of[i].name;
        const double *x = recorded(1, stage, name, check[c].pass, r, &n);
        const double *z = recorded(0, stage, name, check[c].pass, r, &m);
        if (x && z && n == m)
            worst = fmax(worst, difference(x, z, n) / largest_of(z, n));
    }
    return worst;
}

/* ---- the tables of errors */
static void error_row(const char *what, double (*error)(int, int), int i)
{
    put("<tr><td>%s</td>", what);
    for (int r = 0; r < pick.R; r++) {
        const double e = error(i, r);
        put("<td class=%s>%.0e%s</td>", e <= LIMIT ? "fine" : "bad", e,
            e <= LIMIT ? "" : " fails");
    }
    put("</tr>");
}

static void error_head(const char *what)
{
    put("<table><tr><th>%s</th>", what);
    for (int r = 0; r < pick.R; r++) put("<th>rank %d</th>", r);
    put("</tr>");
}

static double correct_error(int i, int r) { return result_error(&got[0], i, r); }

static void errors(void)
{
    put("<h2>Error against the recurrence</h2><p>The largest difference from "
        "<code>ref_step</code> on one rank, relative to the largest value of the "
        "tensor, without any mutant:</p>");
    error_head("result");
    for (int i = 0; i < RESULTS; i++)
        error_row(result_name[i], correct_error, i);
    put("</table>");
}

/* ---- the mutant, and the reader's prediction */
static int first_to_fail(void)
{
    for (int c = 0; c < CHECKS; c++)
        for (int r = 0; r < pick.R; r++)
            if (!(check_error(c, r) <= LIMIT)) return c + 1;
    return NONE;
}

static const char *check_name(int number)
{
    return number == NONE ? "none of them, with these choices" : check[number - 1].what;
}

void question(void)
{
    if (!pick.mutant) return;
    const struct kcp_variant *m = mutants[pick.mutant - 1];
    put("<h2>Mutant %s %s</h2><p>Its mistake: %s. <b>Predict: which of these checks is "
        "the first to fail?</b></p><div class=guess>", m->stage, m->name, m->why);
    for (int g = 1; g <= NONE; g++)
        put("<label><input type=radio name=guess value=%d%s> %s</label>", g,
            g == pick.guess ? " checked" : "", check_name(g));
    put("</div>");
}

static void verdict(void)
{
    const int found = first_to_fail();
    put("<p id=verdict class=%s>%s: the first check to fail is <b>%s</b>.</p>",
        found == pick.guess ? "fine" : "bad", found == pick.guess ? "Right" : "Wrong",
        check_name(found));
    error_head("check");
    for (int c = 0; c < CHECKS; c++) error_row(check[c].what, check_error, c);
    put("</table><p>A check fails if the error is above %.0e of the largest value. The "
        "checks 02 to 07 and 11 compare a stage's tensors with those of the run "
        "without the mutant.</p>", LIMIT);
}

/* ---- maps and states of the segments, in token order */
static void segments(int with)
{
    const struct kcp_plan *p = pick.plan;
    int64_t n;
    put("<h2>Maps and states of the segments</h2><p>Blue is positive, red negative; "
        "the number is a picture's largest absolute value.</p><div class=cards>");
    for (int i = 0; i < p->S; i++) {
        const int j = p->order[i], want = kcp_plan_want(p, j, 0);
        const struct kcp_segment *g = &p->seg[j];
        const int at = j - p->ctx[g->rank].seg0, W = V + K;
        const double *map = recorded(with, "05", "map", KCP_FORWARD, g->rank, &n);
        const double *S = recorded(with, "04", "h_in", KCP_FORWARD, g->rank, &n);
        put("<div class=card><b>rank %d</b>, tokens %lld to %lld of sequence %d<div>",
            g->rank, (long long)g->begin, (long long)g->end - 1, g->n);
        map = map ? map + at * K * W : NULL;
        if (map && want & KCP_WANT_H) picture("h_ext", map, K, V, W, 1, 0);
        if (map && want & KCP_WANT_M) picture("M", map + V, K, K, W, 1, 0);
        if (S) picture("S_in", S + at * K * V, K, V, V, 1, 0);
        put("</div>");
        if (map && want & KCP_WANT_M) {
            double sum = 0;
            for (int e = 0; e < K * K; e++)
                sum += map[e / K * W + V + e % K] * map[e / K * W + V + e % K];
            put("alive: %.2g", sqrt(sum / K));
        } else
            put("%s", want ? "no other rank reads M" : "no other rank reads this map");
        put("</div>");
    }
    put("</div>");
}

/* ---- the exchange */
static void messages(int pass)
{
    const int cols[KCP_FORMS] = { V + K, V, V / 2, V + K }, of_form = cols[pick.form];
    const int W = of_form ? of_form : V;       /* forms that are newer than this page */
    diagram(pick.R, pass, MOST_POSTS);
    put("<details><summary>The messages one by one</summary><table><tr><th>step</th>"
        "<th>from</th><th>to</th><th>bytes</th><th>content</th></tr>");
    for (int i = 0; i < nposts; i++) {
        const struct post *m = &posts[i];
        if (m->pass != pass) continue;
        put("<tr><td>%d</td><td>rank %d</td>", m->step, m->from);
        if (m->to < 0) put("<td>all</td>");
        else put("<td>rank %d</td>", m->to);
        put("<td>%d</td><td>", (int)m->bytes);
        picture(W > V ? "[h | M]" : "S", m->data, (int)m->bytes / 8 / W, W, W, 1, 0);
        put("</td></tr>");
    }
    put("</table></details>");
}

static void exchange(void)
{
    put("<h2>The exchange, form %s</h2>", kcp_form_names[pick.form]);
    if (!nposts) {
        put("<p>No sequence crosses a cut between ranks, so no message is sent.</p>");
        return;
    }
    put("<p>A message is one step after the messages that its content depends on.</p>");
    messages(KCP_FORWARD);
    put("<table><tr><th>sent in forward</th>");
    for (int r = 0; r < pick.R; r++) put("<th>rank %d</th>", r);
    put("</tr><tr><td>bytes, messages, gathers</td>");
    for (int r = 0; r < pick.R; r++)
        put("<td>%d, %d, %d</td>", (int)traffic[r].bytes, (int)traffic[r].messages,
            (int)traffic[r].collectives);
    put("</tr><tr><td>the form's formula</td>");
    for (int r = 0; r < pick.R; r++) {
        const int is_same = !memcmp(&formula[r], &traffic[r], sizeof *traffic);
        put("<td class=%s>%d, %d, %d</td>", is_same ? "fine" : "bad",
            (int)formula[r].bytes, (int)formula[r].messages,
            (int)formula[r].collectives);
    }
    put("</tr></table><p>Backward, with gradients of states and M<sup>T</sup>:</p>");
    messages(KCP_BACKWARD);
}

void report(int with)
{
    if (with) verdict();
    segments(with);
    exchange();
    put("<h2>Outputs and gradients</h2><p>Tokens run from left to right, channels from "
        "top to bottom%s.</p>", with ? "; with the mutant" : "");
    for (int i = 0; i < RESULTS; i++) {
        int row;
        const double *x = result(&got[with], i, &row);
        if (row <= K) picture(result_name[i], x, row, pick.T, 1, row, 1);
    }
    errors();
    put("<p>Ranks were started %d times, because a rank that waits for a message is "
        "started again when other ranks have run.</p>", starts);
}
