/* page.c -- build/run/index.html: the results of make run on one page, without links.
 *
 * Book: style.c.  Checked by: tests/cli/text.sh, and reading the page.
 * Next: svg.c, the figures.
 */
#include "text.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* n bytes of text (-1: the whole string), escaped; bytes above 127 are dots. */
void print_html(FILE *o, const char *s, int64_t n)
{
    for (int64_t i = 0; n < 0 ? s[i] != 0 : i < n; i++) {
        const unsigned char c = s[i];
        if (c == '<' || c == '>' || c == '&' || c == '\'' || c == '"')
            fprintf(o, "&#%d;", c);
        else if (c >= 127)
            fputs("&middot;", o);
        else
            fputc(c < ' ' ? ' ' : c, o);
    }
}

/* The text on both sides of each cut that a sequence crosses. */
static void cuts(FILE *o, const struct finding *f)
{
    const struct kcp_plan *p = f->many->plan;
    const char *byte = (const char *)f->text->byte;
    int shown = 0;
    fputs("<div class='cuts'>\n", o);
    for (int j = 1; j < p->S && shown < 7; j++) {
        const struct kcp_segment *g = &p->seg[j];
        if (g->first)
            continue;
        const int64_t start = p->cu_seqlens[g->n], end = p->cu_seqlens[g->n + 1];
        const int64_t from = g->begin - 48 > start ? g->begin - 48 : start;
        const int64_t to = g->begin + 48 < end ? g->begin + 48 : end;
        fprintf(o, "<div title='rank %d | rank %d'><span>", g->rank - 1, g->rank);
        print_html(o, byte + from, g->begin - from);
        fputs("</span><i></i><span>", o);
        print_html(o, byte + g->begin, to - g->begin);
        fputs("</span></div>\n", o);
        shown++;
    }
    fputs("</div>\n", o);
}

static void plan(FILE *o, const struct finding *f)
{
    const struct kcp_plan *p = f->many->plan;
    fprintf(o, "<h2>The plan</h2><p>A batch of %d sequence%s, one per file: %lld "
            "bytes, one token each. It is cut into %d equal shards, at any place of a "
            "sequence. A ring marks a sequence that crosses a cut: there a rank "
            "receives a state, and %d rows for the convolution.</p><figure>",
            f->text->N, f->text->N > 1 ? "s" : "", (long long)p->T, f->R, WINDOW - 1);
    svg_ribbon(o, f);
    fputs("</figure>\n", o);
    if (p->crossing)
        fputs("<p class='note'>The text at these cuts, the end of one rank left of the "
              "bar and the beginning of the next right of it:</p>", o);
    cuts(o, f);
    fputs("<div class='wide'><table><tr><th>rank<th>tokens<th>sequences<th>state "
          "from<th>state to</tr>\n", o);
    for (int r = 0; r < p->R; r++) {
        const struct kcp_context *c = &p->ctx[r];
        fprintf(o, "<tr><td>%d<td>%lld..%lld<td>%d<td>", r, (long long)c->begin,
                (long long)c->end, c->n_local);
        fprintf(o, c->pre_num_ranks ? "%d before<td>" : "none<td>", c->pre_num_ranks);
        fprintf(o, c->post_num_ranks ? "%d after</tr>\n" : "none</tr>\n",
                c->post_num_ranks);
    }
    fputs("</table></div>\n", o);
}

static void stages(FILE *o, const struct finding *f)
{
    const int shown = f->R < 8 ? f->R : 8;
    fprintf(o, "<h2>Stages</h2><p>Forward, loss and backward over wall-clock time. "
            "Ranks are threads on %ld cores; in a gap the core ran another rank. The "
            "table has milliseconds of CPU time.</p><figure>",
            sysconf(_SC_NPROCESSORS_ONLN));
    svg_lanes(o, f);
    fputs("</figure><div class='wide'><table><tr><th>stage", o);
    for (int r = 0; r < shown; r++)
        fprintf(o, "<th>rank %d", r);
    for (int m = -1; m < MARKS; m++)
        for (int back = 0; back < 1 + (m == MARK_EXCHANGE); back++) {
            fprintf(o, "</tr>\n<tr><td>%s%s", m < 0 ? "all" : mark_name[m],
                    back ? ", back" : "");
            for (int r = 0; r < shown; r++)
                fprintf(o, "<td>%.2f", 1e3 * busy(&f->many->lane[r], m,
                                                  m == MARK_EXCHANGE ? back : -1));
        }
    fputs("</tr></table></div>\n", o);
}

static void alive(FILE *o, const struct finding *f)
{
    const struct kcp_plan *p = f->many->plan;
    fputs("<h2>The share of the state that is alive</h2><p>A stretch of tokens acts on "
          "the state as <i>S</i> &#8594; <i>MS</i> + <i>h</i>. The share of <i>S</i> "
          "that remains is |<i>M</i>|/&#8730;<i>K</i>, per head. Gates are those of "
          "trained models, so some heads remember and others forget.", o);
    if (f->far_seq >= 0)
        fprintf(o, " <b>%.1f %%</b> of the state at the first cut of %s is alive at "
                "its end, on rank %d.", 100 * f->far, f->text->name[f->far_seq],
                f->far_rank);
    fputs("</p><div class='wide'><table class='heat'><tr><th>rank, tokens", o);
    for (int n = 0; n < VALUE_HEADS; n++)
        fprintf(o, "<th>head %d", n);
    for (int j = 0; j < p->S && j < 24; j++) {
        const struct kcp_segment *g = &p->seg[j];
        fprintf(o, "</tr>\n<tr><td>%d, %lld of %s", g->rank,
                (long long)(g->end - g->begin), f->text->name[g->n]);
        for (int n = 0; n < VALUE_HEADS; n++) {
            const double share = f->alive[j][n];
            fprintf(o, "<td style='background:color-mix(in srgb,var(--c) %.0f%%,"
                    "transparent)'>", 75 * sqrt(share));
            if (share < 1e-4) fputs("&lt; 0.01 %", o);
            else fprintf(o, "%.*f %%", share < 0.1 ? 2 : 1, 100 * share);
        }
    }
    fputs("</tr></table></div>\n", o);
}

/* 1572864 as 1 572 864, with thin spaces. */
static void print_count(FILE *o, long long n)
{
    if (n >= 1000) {
        print_count(o, n / 1000);
        fprintf(o, "&#8239;%03lld", n % 1000);
    } else
        fprintf(o, "%lld", n);
}

static void forms(FILE *o, const struct finding *f)
{
    double most = 1;
    for (int i = 0; i < KCP_FORMS; i++)
        most = fmax(most, (double)f->form[i].bytes);
    fprintf(o, "<h2>The exchange</h2><p>Every form of the exchange computes the same "
            "states. Bytes of states and maps that all ranks sent in forward and "
            "backward; %s.</p><div class='wide'><table><tr><th>form<th "
            "class='bar'><th>bytes<th>messages<th>gathers<th>error</tr>\n",
            f->counted ? "the formulas of chapter 07 give the same numbers"
            : "<b>the formulas of chapter 07 give other numbers</b>");
    for (int i = 0; i < KCP_FORMS; i++) {
        const struct kcp_traffic *t = &f->form[i];
        fprintf(o, "<tr><td>%s<td><svg width='100%%' height='12'><rect width='%.2f%%' "
                "height='12' fill='var(--k4)'/></svg><td>", kcp_form_names[i],
                100 * (double)t->bytes / most);
        print_count(o, t->bytes);
        fprintf(o, "<td>%lld<td>%lld<td>%.1e</tr>\n", (long long)t->messages,
                (long long)t->collectives, f->form_err[i]);
    }
    fputs("</table></div>\n", o);
}

static void losses(FILE *o, const struct finding *f)
{
    double apart = 0;
    fputs("<h2>Training</h2>", o);
    if (!f->steps) {
        fputs("<p><code>make run STEPS=20</code> trains the embedding and the "
              "projections on these ranks and on one rank, and plots both losses "
              "here.</p>\n", o);
        return;
    }
    for (int i = 0; i <= f->steps; i++)
        apart = fmax(apart, fabs(f->loss[0][i] - f->loss[1][i]));
    fprintf(o, "<p>Cross-entropy of the next byte in nats, over %d steps of gradient "
            "descent on the embedding and the projections: broad, on %d ranks; thin, "
            "on one. They differ by at most %.1e.</p><figure>",
            f->steps, f->R, apart);
    svg_losses(o, f);
    fputs("</figure>\n", o);
}

/* The page is written to PATH.part and then renamed, so it is complete or absent. */
FILE *page_open(const char *path)
{
    char temp[512];
    struct stat st;
    const int there = stat(path, &st) == 0;
    FILE *o = NULL;
    if (snprintf(temp, sizeof temp, "%s.part", path) >= (int)sizeof temp)
        errno = ENAMETOOLONG;
    else if (there && !S_ISREG(st.st_mode))
        errno = S_ISDIR(st.st_mode) ? EISDIR : EEXIST;    /* never replace a device */
    else
        o = fopen(temp, "w");
    if (!o)
        fprintf(stderr, "kcp-text: %.400s: %s; choose another --out\n",
                there ? path : temp, strerror(errno));
    return o;
}

void page_drop(FILE *o, const char *path)
{
    char temp[512];
    snprintf(temp, sizeof temp, "%s.part", path);
    fclose(o);
    remove(temp);
}

int write_page(const struct finding *f, FILE *o, const char *path)
{
    char line[400], temp[512];
    snprintf(temp, sizeof temp, "%s.part", path);
    close_line(f, line, sizeof line);
    char *rest = strchr(line, ':');
    fprintf(o, "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta "
            "name='viewport' content='width=device-width, initial-scale=1'><meta "
            "name='color-scheme' content='light dark'><title>KCP: one layer, %d "
            "rank%s</title>\n<style>%s%s</style></head>\n<body><main><p "
            "class='over'>KCP &#183; make run</p><h1>One layer, %d rank%s, one result"
            "</h1>\n<div class='verdict%s'><b>%s</b>", f->R, f->R > 1 ? "s" : "",
            book_style, page_style, f->R, f->R > 1 ? "s" : "", f->pass ? "" : " no",
            f->pass ? "Pass" : "Fail");
    print_html(o, rest, -1);
    fprintf(o, "</div><p>A KDA layer (%d query heads, %d value heads, <i>K</i> = %d, "
            "<i>V</i> = %d, chunks of %d) in a small model that predicts the next "
            "byte: embedding, projections, short convolutions, the layer, logits; in "
            "double precision, in C.</p>\n", HEADS, VALUE_HEADS, KEY, VALUE, CHUNK);
    plan(o, f);
    stages(o, f);
    alive(o, f);
    forms(o, f);
    fputs("<h2>The errors</h2><p>Relative RMS error of every output and gradient, of "
          "the worst rank and head.</p><p class='legend'><span><i class='d'></i>"
          "compared with one rank</span> <span><i class='r'></i>with the token "
          "recurrence</span></p><figure>", o);
    svg_errors(o, f);
    fputs("</figure>\n", o);
    losses(o, f);
    fprintf(o, "<p class='note'>%.1f seconds.</p></main></body></html>\n",
            f->took);
    const int lost = ferror(o);
    if (!(fclose(o) || lost || rename(temp, path)))
        return 0;
    fprintf(stderr, "kcp-text: %s: cannot write the page: %s\n", path,
            strerror(errno));
    remove(temp);
    return 2;
}
