/* record.h -- a row of a record as cells with names: written, and found again.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh.  Next: record.c.
 */
#ifndef KCP_BENCH_RECORD_H
#define KCP_BENCH_RECORD_H

#include "judged.h"

struct cell { const char *name; int is_word; char text[LENGTHS_TEXT]; };
struct cells { int n; struct cell at[48]; };

/* What names a row: of whole layers over ranks also the form and the heads' parts. */
void row_cells(struct cells *row, const struct runner *x, const struct kcp_stage *st,
               const struct kcp_variant *v, const struct kcp_call *c);
/* The mode of the saved block, or that there is none. */
const char *save_word(const struct bench *b);
/* What was measured, behind what names the row. */
void time_cells(struct cells *row, const struct runner *x, const struct times *t,
                double bytes, double flops, const struct judged *j);
void json_row(struct record_file *json, const struct cells *row);
/* A new file gets the line of column names first. */
void tsv_row(struct record_file *tsv, const struct bench *b, const struct cells *row);
/* The median of the row of --against with this name and case; 0 if it is not there. */
double recorded_us(const struct bench *b, const struct cells *row);

#endif
