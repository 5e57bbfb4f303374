#!/bin/sh
# by_stage.sh -- the judge stage by stage, JOBS= (2) at once: the lists of one kcp-check.
#
# Book: CONTRIBUTING.md.  Checked by: the stages, which are counted against its own list.
# Usage: by_stage.sh PROGRAM [OPTION...]; the options are kcp-check's.  Next: lanes.sh.
program=${1:?}
shift
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
trap 'exit 1' INT TERM
# The longest first. With --quick only what has variants, else the judge's own and the
# plan's checks too.
"$program" --list | cut -c1-2 | sort -u >"$W/stages"
case " $* " in *" --quick "*) ;; *) ls tests | sed -n 's/^\([0-9][0-9]\)_.*/\1/p' >>"$W/stages"
    echo 00 >>"$W/stages" ;;
esac
[ "$(wc -l <"$W/stages")" -ge 15 ] || { echo "by_stage.sh: found no stages, expected 15"; exit 1; }
longest="13 15 16 00 14"
scripts=$( { echo "$longest" | tr ' ' '\n' | grep -Fxf "$W/stages"; sort -ur "$W/stages"; } |
    awk '!seen[$0]++' | while read -r stage; do
    echo 'exec "$1" '"$* --stage $stage" >"$W/$stage"
    echo "$W/$stage"
done)
# shellcheck disable=SC2086
sh "$(dirname "$0")/lanes.sh" "$program" $scripts >"$W/said"
status=$?
cat "$W/said"
# One closing line for all.
awk '/^[0-9]+ passed, [0-9]+ failed/ { n++; passed += $1; failed += $3 }
    / mutants caught, / { for (i = 2; i <= NF; i++) if ($i == "mutants") caught += $(i - 1) }
    END { printf "by_stage.sh: %d stages: %d mutants caught, %d passed, %d failed\n", n, caught,
              passed, failed }' "$W/said"
exit $status
