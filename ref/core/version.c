/* version.c -- the version of KCP.
 *
 * Book: README.md.  Checked by: tests/cli/run_cli.sh, --version of every program.
 * Next: CHANGELOG.md. */
#include "kcp.h"

const char *kcp_version(void) { return "3.0.0"; }
