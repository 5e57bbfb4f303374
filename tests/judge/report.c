/* report.c -- counts failures, prints the closing lines and computes the exit status.
 * Book: CONTRIBUTING.md. */
#include "judge.h"
#include <stdarg.h>
#include <string.h>

void report_fail(struct kcp_report *r, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    r->fail++;
    if (!r->first[0]) snprintf(r->first, sizeof r->first, "%.255s", line);
    if (!r->quiet || r->fail < 20) printf("  FAIL  %s\n", line);
}

void expect_(struct kcp_report *r, int ok, const char *file, int line, const char *expr,
             const char *fmt, ...)
{
    char text[300];
    va_list ap;
    __atomic_add_fetch(&r->expectations, 1, __ATOMIC_RELAXED);
    if (ok) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    report_fail(r, "%s:%d: %s: %s", file, line, expr, text);
}

const char *judge_program = "build/kcp-check", *judge_options = "";
int judge_full;

const char *shell_word(const char *s, char *buf, size_t n)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_./+-";
    size_t at = 0;
    if (*s && !s[strspn(s, plain)]) {
        snprintf(buf, n, "%s", s);
        return buf;
    }
    at += (size_t)snprintf(buf, n, "'");
    for (; *s && at + 6 < n; s++)
        at += (size_t)snprintf(buf + at, n - at, *s == '\'' ? "'\\''" : "%c", *s);
    snprintf(buf + at, n - at, "'");
    return buf;
}

/* Prints the closing lines. Returns the exit status: 1 if something failed or nothing
 * ran; 3 under --strict if something was skipped or n/a; otherwise 0. */
int report_close(const struct kcp_report *r, int strict)
{
    const int ran = r->pass + r->marginal + r->fail + r->caught + r->survived;
    const int nothing = !ran && (r->selected || !(r->skip || r->na));
    const int bad = r->fail || r->survived || nothing;
    printf("%s%s: %d mutants caught, %d survived; %d n/a\n",
           bad ? "FAILED" : "OK", r->skip || r->na ? ", INCOMPLETE" : "", r->caught,
           r->survived,
           r->na);
    if (nothing && (r->skip || r->na))
        printf("nothing ran: the variant supports no case, or its device was not "
               "found\n");
    else if (nothing) printf("nothing ran: there is no such stage or variant\n");
    printf("%d passed, %d failed, %d skipped\n", r->pass + r->marginal + r->caught,
           r->fail + r->survived, r->skip);
    if (bad) return 1;
    return (r->skip || r->na) && strict ? 3 : 0;
}
