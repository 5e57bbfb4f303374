/* record.h -- a row of a TSV as cells with names.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh.  Next: record.c.
 */
#ifndef KCP_BENCH_RECORD_H
#define KCP_BENCH_RECORD_H

#include "judged.h"

struct cell { const char *name; char text[LENGTHS_TEXT]; };
struct cells { int n; struct cell at[48]; };

/* Stage, variant and pass; of layers on ranks also the form and the parts of heads. */
void row_cells(struct cells *row, const struct runner *x, const struct kcp_stage *st,
               const struct kcp_variant *v, const struct kcp_call *c);
/* "recompute", "all", "light" or "none": the saved block. */
const char *save_word(const struct bench *b);
/* The measurements of the row, and its verdict. */
void time_cells(struct cells *row, const struct runner *x, const struct times *t,
                double bytes, double flops, const struct judged *j);
/* The first row follows a line of column names. */
void tsv_row(const struct runner *x, const struct cells *row);
/* The median of the row of --against with this name and case; 0 if it is not there. */
double recorded_us(const struct bench *b, const struct cells *row);

#endif
