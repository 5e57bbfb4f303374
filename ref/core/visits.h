/* visits.h -- how often a rank may come to its sequences in a scan.
 *
 * Book: chapter 07.  Checked by: tests/cli/run_owners.sh.
 * Next: ../../comm/form/scan.c, which keeps five maps for each. */
#ifndef KCP_VISITS_H
#define KCP_VISITS_H

/* Of a plan with more the other forms remain: KCP_NA, in words (core/checked.c). */
enum { KCP_SCAN_VISITS = 128 };

#endif
