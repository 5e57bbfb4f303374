/* paths.c -- a digest of each row of the table of paths (ref/core/paths.def).
 *
 * Book: chapter 18.  Checked by: tests/cli/digest.sh.  Next: ../digest.sh.
 */
#include "digest.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *file_text(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long n = -1;
    if (f && !fseek(f, 0, SEEK_END)) n = ftell(f);
    if (n >= 0 && !fseek(f, 0, SEEK_SET)) text = malloc((size_t)n + 1);
    if (text && fread(text, 1, (size_t)n, f) != (size_t)n) {
        free(text);
        text = NULL;
    }
    if (text) text[n] = 0;
    else fprintf(stderr, "kcp-digest: %s: found none, expected a file\n", path);
    if (bytes) *bytes = (size_t)n;
    if (f) fclose(f);
    return text;
}

/* The row that begins at s, up to its last parenthesis, without what does not count;
 * NULL: it has no end. The caller frees. */
static char *row_text(const char *s)
{
    char *row = malloc(strlen(s) + 1);
    size_t n = 0;
    int depth = 0, quoted = 0;
    for (; row && *s; s++) {
        if (*s == '"') quoted = !quoted;
        if (!quoted && isspace((unsigned char)*s)) continue;
        if (!quoted) depth += (*s == '(') - (*s == ')');
        row[n++] = *s;
        if (n > 1 && row[n - 1] == '"' && row[n - 2] == '"') n -= 2;    /* "a" "b" */
        if (*s != ')' || depth || quoted) continue;
        row[n] = 0;
        return row;
    }
    free(row);
    return NULL;
}

int paths_print(const char *table, FILE *to)
{
    for (const char *at = table; (at = strstr(at, "KCP_")) != NULL; at++) {
        const size_t begins = strcspn(at, "(") + 1;
        if (strncmp(at, "KCP_PATH(", begins) && strncmp(at, "KCP_BRANCH(", begins))
            continue;
        char *row = row_text(at);
        if (!row) return 2;
        const char *name = row + begins + 1;
        fprintf(to, "path\t%.*s\t-\t%016llx\n", (int)strcspn(name, "\""), name,
                (unsigned long long)digest_bytes(DIGEST_SEED, row, strlen(row)));
        free(row);
    }
    return 0;
}
