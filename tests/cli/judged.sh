#!/bin/sh
# judged.sh -- the judge's lists, as a script beside the others that make test runs.
#
# Book: CONTRIBUTING.md, "How the judge works".  Checked by: its mutants.
# Usage: judged.sh BUILD; JUDGE: a program there, with options. Next: lanes.sh, by_stage.sh.
# kcp-test, which Criterion drives, gives each test a process: half of JOBS= (3) at once.
eval "set -- \"${1:-build}\" ${JUDGE:-kcp-check}"
case $2 in
    kcp-test) exec "$1/kcp-test" -j$(((${JOBS:-3} + 1) / 2)) ;;
    *) echo "Criterion not found: kcp-check drives the tests" ;;
esac
program=$1/$2
shift 2
exec "$program" "$@"
