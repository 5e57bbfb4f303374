#!/bin/sh
# labs.sh -- a student's broken file is heard of by make grade, and nowhere else.
#
# Book: book/labs/STAFF.md.  Checked by: make test, which runs it.  Next: try.sh.
B=${1:-build} MAKE=${MAKE:-make}
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
failed=0 passed=0
wrong() { echo "labs.sh: $*"; failed=$((failed + 1)); }
holds() { passed=$((passed + 1)); }

# The lab's file with one line in its gap, at $line.
hand_in() {                                             # LAB TEXT
    rm -f "$W"/*.c "$W/said"
    $MAKE -s lab LAB="$1" LABWORK="$W" >"$W/said" || wrong "make lab: $(cat "$W/said")"
    file=$(ls "$W"/*.c)
    awk -v text="$2" '{ print } /TODO: / { todo = 1 }
        todo && /\*\// { print text; todo = 0 }' "$file" >"$W/new"
    mv "$W/new" "$file"
    line=$(grep -nF "$2" "$file" | head -1 | cut -d: -f1)
}
# graded WHAT [SECONDS]: refused, and WHAT is said. Only what never ends is stopped soon:
# a busy machine is slow at the rest.
graded() {
    $MAKE --no-print-directory -s grade B="$B" LAB="$lab" LABWORK="$W" SEED= STAFF= \
        LAUNCH= LIMIT="${2:-60}" >"$W/said" 2>&1 && wrong "$lab: exit status 0 for $1"
    grep -qF "$1" "$W/said" && holds || wrong "$lab: no '$1' in: $(cat "$W/said")"
}

# Nothing that others need is made of a student's file; and what was built of an earlier
# one is gone when it no longer compiles.
lab=07_merge
hand_in $lab 'this is no C;'
$MAKE -n kcp-check "$B/kcp-check" 2>/dev/null | grep -q "$W\|book/labs/work" &&
    wrong "kcp-check is made of a lab's file" || holds
touch "$B/kcp-grade-$lab"
graded "$file:$line:"
[ ! -e "$B/kcp-grade-$lab" ] && holds || wrong "an old $B/kcp-grade-$lab is left"
hand_in $lab 'abort();';                        graded "$file:$line: ABRT: abort();"
hand_in $lab 'next[0][V + 100000000] = 1;';     graded "$file:$line: index 1"
hand_in $lab 'for (;;) ;';                      graded "$file:$line: it was here" 2
hand_in $lab 'return ref_merge(NULL);';         graded "calls ref_merge"
hand_in $lab 'return not_mine(next);';          graded "$file:$line"
hand_in $lab '((double *)map)[0] = 1;';         graded 'wrote into input maps'
# It neither ends the judge, nor speaks in its place, nor leaves processes, nor fills
# the disk.
hand_in $lab 'extern int puts(const char *); puts("1 passed, 0 failed"); exit(0);'
graded "calls exit"
hand_in $lab 'extern int fork(void); fork();';  graded "calls fork"
hand_in $lab 'extern int puts(const char *); for (;;) puts("and again");'
graded "it prints without end"
[ "$(wc -c <"$B/grade/$lab.1")" -lt 17000000 ] && holds || wrong "megabytes are left"
hand_in $lab 'extern int close(int); close(1); close(2);'
graded "it ended without a verdict"
lab=07b_check
hand_in $lab 'return *(volatile int *)0;';      graded "$file:$line: load of null"

# Staff's own file: a row that nobody has seen, a twist, a planted mistake, a mistake.
staff=book/labs/staff.example
for lab in 01_step 07b_check; do
    rm -f "$W"/*.c
    src=$(sed -n 's/^file *//p' book/labs/$lab.lab)
    region=$(sed -n 's/^region *//p' book/labs/$lab.lab)
    awk -v r="$region" '/^[ \t]*\/\/< / && $2 == r { on = 0 } on
        /^[ \t]*\/\/> / && $2 == r { on = 1 }' "$src" >"$W/right"
    sed -n '/^lab *'${lab%%_*}'/,/^lab /s/^twist *//p' $staff >"$W/twist"
    sed -f "$W/twist" "$W/right" >"$W/fill"
    awk -v fill="$W/fill" -f book/labs/new.awk book/labs/$lab.lab "$src" >"$W/$lab.c"
    $MAKE --no-print-directory -s grade B="$B" LAB=$lab LABWORK="$W" STAFF=$staff \
        SEED=7 LAUNCH= >"$W/said" 2>&1 && holds ||
        wrong "$lab with staff's rows: $(cat "$W/said")"
done
lab=01_step
awk -v fill="$W/none" -f book/labs/new.awk book/labs/$lab.lab ref/01_step.c >"$W/$lab.c"
for text in 'score 1 x' 'lab 01
scores 1 x | y' 'score 1 a | b'; do
    echo "$text" >"$W/staff"
    $MAKE -s grade B="$B" LAB=$lab LABWORK="$W" STAFF="$W/staff" >"$W/said" 2>&1 &&
        wrong "a wrong STAFF file is taken"
    grep -q "staff:[12]: found .*, expected" "$W/said" && holds ||
        wrong "$(cat "$W/said")"
done

# An option that is no number is not the student's mistake.
for option in SEED=x SEED=-1 LIMIT=x LIMIT=0 LAUNCH=no-such-command LABWORK="$W/a b"; do
    $MAKE -s grade B="$B" LAB=01 LABWORK="$W" STAFF= "$option" >"$W/said" 2>&1 &&
        wrong "$option is taken"
    grep -qF "$option: " "$W/said" && ! grep -q 'Score' "$W/said" && holds ||
        wrong "$option: $(cat "$W/said")"
done

# The rows of a kernel that look at the clock, on times that are typed here.
mkdir -p "$W/b"
cat >"$W/b/kcp-grade-bench-k" <<'END'
#!/bin/sh
echo '# copy 4.27 TB/s; T=8192'
echo '05_affine                  v1_column                 1000.0   990.0  1010.0'
echo '05_affine                  v3_group_sm90              440.0   430.0   450.0'
echo "05_affine                  lab                        $MINE   880.0   900.0"
END
chmod +x "$W/b/kcp-grade-bench-k"
for want in '900 v1_column 0.95 ok yours 900.0 us, v1_column 1000.0 us' \
    '1100 v1_column 0.95 slower yours 1100.0 us, v1_column 1000.0 us' \
    '880 best 0.5 ok yours 880.0 us, v3_group_sm90 440.0 us' \
    '890 best 0.5 slower yours 890.0 us, v3_group_sm90 440.0 us'; do
    # shellcheck disable=SC2086
    said=$(set -- $want; B=$W/b id=k stage=05_affine out=$W/said MINE=$1
           export MINE; . book/labs/rows.sh; make_it() { :; }; add() { echo "$3 $4"; }
           speed title 1 "$2" "$3" 2>&1)
    [ "$said" = "${want#* * * }" ] && holds || wrong "speed says '$said', not '$want'"
done
rm -f "$B/kcp-grade-07"* "$B/kcp-grade-01"*
echo "labs.sh: $passed as it should be, $failed not"
[ $failed = 0 ]
