/* said.h -- did all that a program printed arrive?
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli/cli.sh, tests/cli/run_cli.sh.
 * Next: said.c.
 */
#ifndef KCP_SAID_H
#define KCP_SAID_H

/* At the start of main: the library's notices are lines on stderr. */
void say_notices(void);
/* At the end of main: status; or, where stdout took not all of it, one line on stderr
 * and 2, so that no verdict is lost unheard. A status that is not 0 stays. */
int all_said(const char *program, int status);

#endif
