/* source.c -- text that a digest is made of: C without comments, rows of a table.
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

/* Past a comment, or a line that includes one of our files; 0 where there is none. */
static size_t skipped(const char *s, int line_begins)
{
    if (!strncmp(s, "//", 2)) return strcspn(s, "\n");
    if (!strncmp(s, "/*", 2)) {
        const char *end = strstr(s + 2, "*/");
        return end ? (size_t)(end + 2 - s) : strlen(s);
    }
    if (line_begins && !strncmp(s, "#include \"", 10)) return strcspn(s, "\n");
    return 0;
}

/* A literal is taken as it stands: its blanks count, and what looks like a comment. */
static size_t literal(const char *s)
{
    size_t n = 1;
    if (*s != '"' && *s != '\'') return 0;
    while (s[n] && s[n] != *s && s[n] != '\n') n += s[n] == '\\' && s[n + 1] ? 2 : 1;
    return s[n] == *s ? n + 1 : n;
}

/* Blanks and comments count where they part two words, and there as one blank. */
uint64_t source_digest(const char *s)
{
    uint64_t h = DIGEST_SEED;
    int parted = 0, word = 0, line_begins = 1;
    while (*s) {
        size_t n = skipped(s, line_begins);
        if (n || isspace((unsigned char)*s)) {
            if (*s == '\n') line_begins = 1;
            s += n ? n : 1;
            parted = 1;
            continue;
        }
        const int in_word = isalnum((unsigned char)*s) || *s == '_';
        if (parted && word && in_word) h = digest_bytes(h, " ", 1);
        n = literal(s);
        if (!n) n = 1;
        h = digest_bytes(h, s, n);
        s += n;
        parted = line_begins = 0;
        word = in_word;
    }
    return h;
}

/* Lines without their blanks, in any order: a table's layout is no content. */
uint64_t paths_digest(uint64_t h, const char *table, const char *stage,
                      const char *variant)
{
    uint64_t rows = 0;
    char quoted[2][64];
    snprintf(quoted[0], sizeof quoted[0], "\"%s\"", stage);
    snprintf(quoted[1], sizeof quoted[1], "\"%s\"", variant);
    for (const char *at = table; *at;) {
        const size_t n = strcspn(at, "\n");
        char *row = malloc(n + 1);
        if (!row) return 0;
        memcpy(row, at, n);
        row[n] = 0;
        if (strstr(row, quoted[0]) && strstr(row, quoted[1])) rows += source_digest(row);
        free(row);
        at += n + (at[n] == '\n');
    }
    return rows ? digest_bytes(h, &rows, sizeof rows) : h;
}
