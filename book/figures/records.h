/* records.h -- reads rows of tables in bench/results/ by the names of columns.
 *
 * Book: README, chapters 17 to 20.  Included by ladder.c, parts.c and figures. */
#ifndef BOOK_RECORDS_H
#define BOOK_RECORDS_H

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An open table: its line of column names, and the row that was read last. */
struct record { FILE *f; char head[4096], line[4096]; };

/* Copies field i of a line of tab-separated fields to `out`. */
static inline void record_field(const char *line, int i, char out[128])
{
    for (; i > 0 && line; i--) {
        line = strchr(line, '\t');
        if (line)
            line++;
    }
    const int n = line ? (int)strcspn(line, "\t\n") : 0;
    snprintf(out, 128, "%.*s", n < 127 ? n : 127, line ? line : "");
}

/* Returns the value of a column in the current row, or "" without such a column. */
static inline const char *record_get(const struct record *r, const char *name,
                                     char out[128])
{
    for (int i = 0; i < 64; i++) {
        record_field(r->head, i, out);
        if (!strcmp(out, name)) {
            record_field(r->line, i, out);
            return out;
        }
    }
    out[0] = 0;
    return out;
}

static inline double record_number(const struct record *r, const char *name)
{
    char s[128];
    return atof(record_get(r, name, s));
}

static inline int record_is(const struct record *r, const char *name, const char *value)
{
    char s[128];
    return !strcmp(record_get(r, name, s), value);
}

/* Reads the next row and returns 1; at the end of the file closes it and returns 0. */
static inline int record_next(struct record *r)
{
    if (fgets(r->line, sizeof r->line, r->f)) return 1;
    fclose(r->f);
    return 0;
}

static inline int record_open(struct record *r, const char *path)
{
    r->f = fopen(path, "r");
    if (!r->f) return 0;
    if (fgets(r->head, sizeof r->head, r->f)) return 1;
    fclose(r->f);
    r->f = NULL;
    return 0;
}

/* All rows of the tables whose names match a pattern, oldest table first. */
struct records { glob_t files; size_t at; struct record row; };

static inline void records_open(struct records *all, const char *pattern)
{
    all->row.f = NULL;
    all->at = 0;
    if (glob(pattern, 0, NULL, &all->files)) all->files.gl_pathc = 0;
}

/* Reads the next row and returns 1; after the last row frees all and returns 0. */
static inline int records_next(struct records *all)
{
    for (;;) {
        if (all->row.f && record_next(&all->row)) return 1;
        all->row.f = NULL;
        if (all->at == all->files.gl_pathc) break;
        record_open(&all->row, all->files.gl_pathv[all->at++]);
    }
    if (all->at) globfree(&all->files);
    return 0;
}

/* Returns the name of the table that has the current row. */
static inline const char *records_file(const struct records *all)
{
    return strrchr(all->files.gl_pathv[all->at - 1], '/') + 1;
}

#endif
