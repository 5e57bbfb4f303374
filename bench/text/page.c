/* page.c -- writes build/run/index.html, the results of make run on one page.
 * Book: page.css. */
#include "text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void stages(FILE *o, const struct finding *f)
{
    fprintf(o, "<h2>Stages</h2><p>Forward, loss and backward over wall-clock time. "
            "Ranks are threads on %ld cores; in gaps, the core ran another rank.</p>"
            "<figure>", sysconf(_SC_NPROCESSORS_ONLN));
    svg_lanes(o, f);
    fputs("</figure>\n", o);
}

/* Prints the report that the terminal also shows. */
static void numbers(FILE *o, const struct finding *f)
{
    char *text = NULL;
    size_t n = 0;
    FILE *m = open_memstream(&text, &n);
    if (!m) return;
    print_report(m, f);
    print_training(m, f);
    fclose(m);
    fputs("<h2>The numbers</h2><pre>", o);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n')
            fputc('\n', o);
        else print_html(o, text + i, 1);
    }
    fputs("</pre>\n", o);
    if (!f->steps)
        fputs("<p><code>make run STEPS=20</code> "
              "also trains the embedding and the projections.</p>\n", o);
    free(text);
}

int write_page(const struct finding *f, FILE *o, const char *path)
{
    char line[400];
    close_line(f, line, sizeof line);
    char *rest = strchr(line, ':');
    fprintf(o, "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta "
            "name='viewport' content='width=device-width, initial-scale=1'><meta "
            "name='color-scheme' content='light dark'><title>KCP: one layer, %d "
            "rank%s</title>\n<style>%s</style></head>\n<body><main><p "
            "class='over'>KCP &#183; make run</p><h1>One layer, %d rank%s, one result"
            "</h1>\n<div class='verdict%s'><b>%s</b>", f->R, f->R > 1 ? "s" : "",
            page_style, f->R, f->R > 1 ? "s" : "", f->pass ? "" : " no",
            f->pass ? "Pass" : "Fail");
    print_html(o, rest, -1);
    fprintf(o, "</div><p>A KDA layer (%d query heads, %d value heads, <i>K</i> = %d, "
            "<i>V</i> = %d, chunks of %d) in a small model: "
            "embedding, projections, short convolutions, the layer and logits. "
            "The model predicts the next byte, in double precision.</p>\n", HEADS,
            VALUE_HEADS, KEY, VALUE, CHUNK);
    stages(o, f);
    numbers(o, f);
    fprintf(o, "<p class='note'>%.1f seconds.</p></main></body></html>\n",
            f->took);
    const int lost = ferror(o);
    if (!fclose(o) && !lost) return 0;
    fprintf(stderr, "kcp-text: %s: cannot write the page: %s\n", path,
            strerror(errno));
    return 2;
}
