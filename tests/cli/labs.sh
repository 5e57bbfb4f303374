#!/bin/sh
# labs.sh -- checks `make grade`: messages about a student's wrong file, folders of files,
# rows of the file that STAFF= names, wrong options.
# Book: book/staff.md.
# Usage: labs.sh BUILD. A broken file is graded by the first `score` row of the .lab file,
# or with FULL=1 by all rows.
B=${1:-build} MAKE=${MAKE:-make}
# Restarts this script through make, which passes its compilers and options to the grader.
[ -n "$LAB_CFLAGS" ] || exec $MAKE --no-print-directory -s test-labs B="$B"
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
failed=0 passed=0
pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "  FAIL  labs.sh: $*"; }

# answer LAB SED: prints the lab's file with its right answer, edited by SED.
answer() {
    echo "$2" >"$W/edit"
    awk -v edit="$W/edit" -f book/labs/new.awk "book/labs/$1.lab" \
        "$(sed -n 's/^file *//p' "book/labs/$1.lab")"
}
# hand_in LAB TEXT: makes the lab's file with line TEXT in its gap, and sets $line.
hand_in() {
    lab=$1
    rm -f "$W"/*.c
    LABWORK=$W sh book/labs/lab.sh "book/labs/$1.lab" >"$W/output" || fail "$(cat "$W/output")"
    file=$(ls "$W"/*.c)
    awk -v text="$2" '{ print } /TODO: / { todo = 1 }
        todo && /\*\// { print text; todo = 0 }' "$file" >"$W/new"
    mv "$W/new" "$file"
    line=$(grep -nF "$2" "$file" | head -1 | cut -d: -f1)
}
grade() {                        # LAB option...: make grade
    LAB=$1; shift
    $MAKE --no-print-directory -s grade B="$B" LAB="$LAB" LABWORK="$W" SEED= STAFF= LAUNCH= \
        LIMIT=60 "$@" >"$W/output" 2>&1
}
# loses TEXT [SECONDS]: checks that the grade is below full points, and TEXT is printed.
loses() {
    rows=book/labs/$lab.lab
    [ -n "$FULL" ] || { rows=$W/$lab.lab
        awk '!/^(score|wrong|hint) / || (/^score/ && !n++)' "book/labs/$lab.lab" >"$rows"; }
    LABWORK=$W HELD=yes SEED= LAUNCH= LIMIT=${2:-60} sh book/labs/grade.sh "$rows" \
        >"$W/output" 2>&1 && fail "$lab: status 0 for $1"
    grep -qF "$1" "$W/output" && pass || fail "$lab: no '$1' in: $(cat "$W/output")"
}

# ---- a broken file
hand_in 07_merge 'this is no C;'
$MAKE -n kcp-check "$B/kcp-check" 2>/dev/null | grep -q "$W\|book/labs/work" &&
    fail "kcp-check is compiled from a lab's file" || pass
grade 07_merge && fail 'status 0 for a file that does not compile'
grep -qF "$file:$line:" "$W/output" && pass || fail "make grade: $(cat "$W/output")"
hand_in 07_merge 'abort();';                    loses "$file:$line: ABRT: abort();"
hand_in 07_merge 'next[0][V + 100000000] = 1;'; loses "$file:$line: index 1"
hand_in 07_merge 'for (;;) ;';                  loses "$file:$line: the program was at this line" 2
hand_in 07_merge '((double *)map)[0] = 1;';     loses 'wrote into input maps'
hand_in 07_merge 'return not_mine(next);';      loses 'not_mine'
hand_in 07_merge 'extern const struct kcp_mapops ref_mapops; ref_mapops.apply(1, K, V, map, 0, 0, 0, V, S, ld, next, Vb, NULL);'
loses 'uses kcp_ref_mapops'
hand_in 07_merge 'extern int puts(const char *); for (;;) puts("and again");'
loses 'it prints without end'
leave='extern int puts(const char *); extern void exit(int); puts("1 passed, 0 failed, 0 skipped"); exit(0);'
hand_in 07_merge "$leave";                      loses 'without a verdict'
answer 07s_scan '' >"$W/07s_scan.c"; lab=07s_scan
echo "__attribute__((constructor)) static void first(void) { $leave }" >>"$W/07s_scan.c"
loses 'a function that runs before main'
rm "$W/07s_scan.c"
hand_in 07b_check "$leave";                     loses 'the process failed: it ended its process with status 0'
hand_in 07b_check 'return *(volatile int *)0;'; loses "$file:$line: load of null"
answer 17_roles 's/_expect(full,/_expect(\&m->empty[at],/' >"$W/17_roles.c"; lab=17_roles
loses 'consumer 0 at chunk 0 waits for full of stage 0, phase 0'
answer 18_producer 's/phase - 1/phase/' >"$W/18_producer.cuh"; lab=18_producer
loses 'consumer lane 0 of block 0 waits for full of stage 1 of pipeline A, phase 1'
answer 18_producer 's/enum { STAGES = .*/&exit(0);/' >"$W/18_producer.cuh"
loses 'it ended without a verdict'
answer 14_halo '' >"$W/14_halo.c"
grade 14 && pass || fail "the right answer of 14: $(cat "$W/output")"
answer 06_plan 's/.last = end == to/.last = 1/' >"$W/06_plan.c"
grade 4 && fail 'status 0 for a lab with lost points'
grep -q '  right: segment 0: .* last 0' "$W/output" && grep -q '^Lab 4, .*: 6/18' "$W/output" && pass ||
    fail "make grade LAB=4: $(cat "$W/output")"
hand_in 15_blelloch ';'; printf '#include "15_scan.h"\n' >"$file"; loses scan_up
# If all ranks send before they receive, the answer hangs over NCCL and must lose points.
hand_in 07c_chain ';'
answer 07c_chain 's/= err ? err : x->comm->group.*/= err;/; s/err = group_end(.*/;/' >"$file"
grade 07c_chain && fail 'status 0 for a chain that waits for itself'
grep -q 'over NCCL a send ends when it is received' "$W/output" && pass || fail "$(cat "$W/output")"

# ---- two concurrent gradings with separate scores; a hint
rm -f "$W"/*.c; mkdir "$W/a" "$W/b"
answer 04_chunk '' >"$W/a/04_chunk.c"
answer 04_chunk 's/S\[i\]\[v\] \*= decay;/;/' >"$W/b/04_chunk.c"
for student in a b; do
    $MAKE --no-print-directory -s grade B="$B" LAB=04 LABWORK="$W/$student" SEED= STAFF= \
        LAUNCH= >"$W/output.$student" 2>&1 &
done
wait
grep -q '^Score: 6/6' "$W/output.a" && grep -q '^Score: 0/6' "$W/output.b" && pass ||
    fail "two concurrent gradings: $(grep Score "$W/output.a" "$W/output.b")"
grep -q 'hint: .* does not fade the state' "$W/output.b" && pass || fail "$(cat "$W/output.b")"

# ---- a folder of files gives a table; a second run skips unchanged files
mkdir -p "$W/in/ada" "$W/in/bob" "$W/in/o\"k & s"
cp "$W/a/04_chunk.c" "$W/in/ada/"; cp "$W/b/04_chunk.c" "$W/in/bob/"
echo 'this is no C;' >"$W/in/eve.c"; cp "$W/in/eve.c" "$W/in/o\"k & s/04_chunk.c"
all() { $MAKE --no-print-directory -s grade-all B="$B" LAB=04 DIR="$W/in" SEED= STAFF= \
    >"$W/output" 2>&1; }
all && [ "$(cut -f1,3 "$W/in/.graded/04_chunk/table.tsv" | tr '\t\n' ' ,')" = \
    'name score,ada 6,bob 0,eve 0,o"k & s 0,' ] && pass || fail "grade-all: $(cat "$W/output")"
all && ! grep -q '^ada' "$W/output" && pass || fail "graded again: $(cat "$W/output")"
python3 -c 'import json, sys; [json.load(open(f)) for f in sys.argv[1:]]' \
    "$W/in/.graded/04_chunk"/*.json 2>/dev/null && pass || fail "$(ls "$W/in/.graded/04_chunk")"

# ---- rows of STAFF=: a row, a twist (changed task), a planted mistake; invalid rows
staff=book/labs/staff.example
for lab in 01_step 07b_check; do
    rm -f "$W"/*.c
    sed -n '/^lab *'${lab%%_*}'/,/^lab /s/^twist *//p' $staff >"$W/twist"
    answer $lab "$(cat "$W/twist")" >"$W/$lab.c"
    grade $lab STAFF=$staff SEED=7 && pass || fail "$lab with staff's rows: $(cat "$W/output")"
done
answer 01_step '' >"$W/01_step.c"
for text in 'score 1 x' 'lab 01
scores 1 x | y' 'score 1 a | b'; do
    echo "$text" >"$W/staff"
    grade 01 STAFF="$W/staff" && fail "a wrong STAFF file is accepted"
    grep -q "staff:[12]: " "$W/output" && pass || fail "STAFF: $(cat "$W/output")"
done
for option in SEED=x SEED=-1 LIMIT=x LIMIT=0 LAUNCH=no-such-command LABWORK="$W/a b"; do
    grade 01 "$option" && fail "$option is accepted"
    grep -qF "$option: " "$W/output" && ! grep -q Score "$W/output" && pass ||
        fail "$option: $(cat "$W/output")"
done
# All rows must be judged even if the launcher reads standard input, as mpirun does.
printf '#!/bin/sh\ncat >/dev/null\nexec "$@"\n' >"$W/eats"
chmod +x "$W/eats"
answer 04_chunk 's/S\[i\]\[v\] \*= decay;/;/' >"$W/04_chunk.c"
grade 04 LAUNCH="$W/eats" && fail "status 0 under a launcher"
cp "$W/output" "$W/wrong"
answer 04_chunk '' >"$W/04_chunk.c"
grade 04 LAUNCH="$W/eats" && pass || fail "the right answer under a launcher: $(cat "$W/output")"
cp "$W/wrong" "$W/output"
grep -q '^Score: 0/6' "$W/output" && [ "$(grep -c '^==' "$W/output")" = 4 ] && pass ||
    fail "under a launcher that reads stdin: $(cat "$W/output")"
# A lab that runs on the host is limited to 4 GiB of memory.
rm -f "$W"/*.c
hand_in 07b_check 'extern void *malloc(unsigned long); extern int puts(const char *); puts(malloc(5ul << 30) ? "unlimited" : "limited"); return 1;'
grade 07b_check
own=$B/grade/$lab-$(realpath "$file" | cksum | cut -d' ' -f1)
grep -q '^limited' "$own/out.1" && pass || fail "5 GiB: $(cat "$own/out.1")"
for d in "$B"/grade/*/; do
    case $(cat "$d/work" 2>/dev/null) in "$W"/*) rm -rf "$d" ;; esac
done
echo "labs.sh: $passed passed, $failed failed"
[ $failed = 0 ]
