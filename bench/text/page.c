/* page.c -- build/run/index.html: what make run found, on one page without a net.
 *
 * Book: its style is the book's.  Checked by: eyes, light and dark, broad and narrow.
 * Next: svg.c, the figures.
 */
#include "text.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* n bytes (-1: to the end) as text: markup escaped, bytes beyond ASCII as dots. */
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

/* What stands on both sides of each cut that a sequence crosses. */
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
    fprintf(o, "<h2>Who holds what</h2><p>%d sequence%s, one a file, lie one after "
            "another: %lld bytes, one token each. The batch is cut into %d equal "
            "shards wherever the cuts fall. A ring marks where a sequence crosses a "
            "cut: there a state must arrive, and %d rows for the "
            "convolution.</p><figure>",
            f->text->N, f->text->N > 1 ? "s" : "", (long long)p->T, f->R, WINDOW - 1);
    svg_ribbon(o, f);
    fputs("</figure>\n", o);
    if (p->crossing)
        fputs("<p class='note'>The text at those cuts; left of the bar one rank, right "
              "of it the next:</p>", o);
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
    fprintf(o, "<h2>What each rank did</h2><p>Forward, loss and backward by the wall "
            "clock. Ranks are threads here and share %ld cores: in a gap another one "
            "has the core. In the table, milliseconds at work.</p><figure>",
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
    fputs("<h2>How much state is alive</h2><p>A stretch of tokens acts on the state as "
          "<i>S</i> &#8594; <i>MS</i> + <i>h</i>. The share of <i>S</i> that survives "
          "is |<i>M</i>|/&#8730;<i>K</i>, by head: gates as trained models have them, "
          "so one head remembers and another forgets.", o);
    if (f->far_seq >= 0)
        fprintf(o, " Of what the first rank of %s hands on, <b>%.1f %%</b> is alive "
                "where it ends, on rank %d.", f->text->name[f->far_seq], 100 * f->far,
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

/* 1572864 as 1 572 864, by thin spaces. */
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
    for (int i = 0; i < FORMS; i++)
        most = fmax(most, (double)f->form[i].bytes);
    fprintf(o, "<h2>What went over the wire</h2><p>Four forms of the exchange compute "
            "the same states. Bytes that all ranks sent, forward and backward, states "
            "and maps only, counted; %s.</p><div class='wide'><table><tr><th>form<th "
            "class='bar'><th>bytes<th>messages<th>gathers<th>against one rank</tr>\n",
            f->counted ? "chapter 07&#8217;s formulas give the same numbers"
            : "<b>chapter 07&#8217;s formulas give other numbers</b>");
    for (int i = 0; i < FORMS; i++) {
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
              "projections over these ranks and on one rank, and draws both losses "
              "here.</p>\n", o);
        return;
    }
    for (int i = 0; i <= f->steps; i++)
        apart = fmax(apart, fabs(f->loss[0][i] - f->loss[1][i]));
    fprintf(o, "<p>The next byte&#8217;s cross-entropy, in nats, over %d plain "
            "gradient steps on the embedding and the projections: broad, with %d "
            "ranks; thin, with one. They are at most %.1e apart.</p><figure>",
            f->steps, f->R, apart);
    svg_losses(o, f);
    fputs("</figure>\n", o);
}

/* Written beside its place and then moved there: no reader sees half a page. */
FILE *page_open(const char *path)
{
    char temp[512];
    struct stat st;
    const int there = stat(path, &st) == 0;
    FILE *o = NULL;
    if (snprintf(temp, sizeof temp, "%s.part", path) >= (int)sizeof temp)
        errno = ENAMETOOLONG;
    else if (there && !S_ISREG(st.st_mode))
        errno = S_ISDIR(st.st_mode) ? EISDIR : EEXIST;    /* a device is not replaced */
    else
        o = fopen(temp, "w");
    if (!o)
        fprintf(stderr, "kcp-text: %.400s: %s; expected a place to write the page\n",
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
            "rank%s</title>\n<style>%s</style></head>\n<body><main><p class='over'>KCP "
            "&#183; make run</p><h1>One layer, %d rank%s, one result</h1>\n<div "
            "class='verdict%s'><b>%s</b>", f->R, f->R > 1 ? "s" : "",
            page_style, f->R, f->R > 1 ? "s" : "", f->pass ? "" : " no",
            f->pass ? "Pass" : "Fail");
    print_html(o, rest, -1);
    fprintf(o, "</div><p>A KDA layer (%d query heads, %d value heads, <i>K</i> = %d, "
            "<i>V</i> = %d, chunks of %d) inside a small model that predicts the next "
            "byte: embedding, projections, short convolutions, the layer, logits. In "
            "double, in plain C.</p>\n", HEADS, VALUE_HEADS, KEY, VALUE, CHUNK);
    plan(o, f);
    stages(o, f);
    alive(o, f);
    forms(o, f);
    fputs("<h2>The errors</h2><p>Relative RMS of every output and gradient, the worst "
          "rank and head.</p><p class='legend'><span><i class='d'></i>against one "
          "rank</span> <span><i class='r'></i>against the token "
          "recurrence</span></p><figure>", o);
    svg_errors(o, f);
    fputs("</figure>\n", o);
    losses(o, f);
    fprintf(o, "<p class='note'>%.1f seconds in all.</p></main></body></html>\n",
            f->took);
    const int lost = ferror(o);
    if (!(fclose(o) || lost || rename(temp, path)))
        return 0;
    fprintf(stderr, "kcp-text: %s: %s; expected room for the page\n", path,
            strerror(errno));
    remove(temp);
    return 2;
}
