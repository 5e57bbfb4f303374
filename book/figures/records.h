/* records.h -- reads rows of tables in bench/results/ by the names of columns.
 *
 * Book: README, chapter 19.  Included by measured.c and errors.c. */
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
    return 0;
}

#endif
