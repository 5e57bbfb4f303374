/* bench_record.c -- what a record says of its case, and a row of an earlier one.
 *
 * Book: chapter 17.  Checked by: a record of another case is refused.  Next: record.sh.
 */
#include "bench.h"
#include <stdlib.h>
#include <string.h>

const char *case_head(const struct bench *b, char *s, size_t n)
{
    const struct kcp_call *c = &b->call;
    snprintf(s, n, "\"T\":%lld,\"H\":%d,\"HV\":%d,\"K\":%d,\"V\":%d,\"C\":%d,"
             "\"segments\":%d,\"model\":\"%s\",\"gate\":\"%s\","
             "\"save\":\"%s\"", (long long)c->T, c->H, c->HV, c->K, c->V, c->C, c->NS,
             c->model ? "gdn" : "kda", regime_name[b->regime],
             c->save ? "all" : "recompute");
    return s;
}

int same_case(const struct bench *b)
{
    char head[512], want[200];
    FILE *f = fopen(b->against, "r");
    if (!f) return 0;
    const int got = fgets(head, sizeof head, f) != NULL;
    fclose(f);
    return got && strstr(head, case_head(b, want, sizeof want));
}

double recorded_us(const char *file, const char *stage, const char *variant, int pass)
{
    char want[160], line[1024];
    double us = 0;
    FILE *f = fopen(file, "r");
    snprintf(want, sizeof want, "\"stage\":\"%s\",\"variant\":\"%s\",\"pass\":%d,\"us\":",
             stage, variant, pass);
    while (f && us == 0 && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, want);
        if (at) us = strtod(at + strlen(want), NULL);
    }
    if (f) fclose(f);
    return us;
}
