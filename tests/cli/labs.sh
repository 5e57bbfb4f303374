#!/bin/sh
# labs.sh -- a student's broken file is heard of by make grade, and nowhere else.
#
# Book: book/labs/STAFF.md.  Checked by: make test, which runs it.  Next: ../../book/labs/try.sh.
# How a file breaks is seen by a lab's first row too: alone, but with FULL=1. The first
# file goes by make lab and make grade, all others straight to the scripts behind them.
B=${1:-build} MAKE=${MAKE:-make}
# What make knows of compilers and options the grader is told by make.
[ -n "$LAB_CFLAGS" ] || exec $MAKE --no-print-directory -s test-labs B="$B"
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
failed=0 passed=0
wrong() { echo "labs.sh: $*"; failed=$((failed + 1)); }
holds() { passed=$((passed + 1)); }

# Is this make's, for the first time?
by_make() {
    [ -z "$FULL" ] || return 0
    case $made in *" $1"*) return 1 ;; esac
    made="$made $1"
}
made=
# The lab's file with one line in its gap, at $line.
hand_in() {                                             # LAB TEXT
    rm -f "$W"/*.c "$W/said"
    if by_make lab; then $MAKE -s lab LAB="$1" LABWORK="$W" >"$W/said"
    else LABWORK=$W sh book/labs/lab.sh "book/labs/$1.lab" >"$W/said"
    fi || wrong "make lab: $(cat "$W/said")"
    file=$(ls "$W"/*.c)
    awk -v text="$2" '{ print } /TODO: / { todo = 1 }
        todo && /\*\// { print text; todo = 0 }' "$file" >"$W/new"
    mv "$W/new" "$file"
    line=$(grep -nF "$2" "$file" | head -1 | cut -d: -f1)
}
# graded WHAT [SECONDS]: refused, and WHAT is said. Only what never ends is stopped soon:
# a busy machine is slow at the rest.
graded() {
    if by_make grade; then
        $MAKE --no-print-directory -s grade B="$B" LAB="$lab" LABWORK="$W" SEED= STAFF= \
            LAUNCH= LIMIT="${2:-60}"
    else
        LABWORK=$W HELD=yes SEED= LAUNCH= LIMIT=${2:-60} \
            sh book/labs/grade.sh "book/labs/$lab.lab"
    fi >"$W/said" 2>&1 && wrong "$lab: exit status 0 for $1"
    grep -qF "$1" "$W/said" && holds || wrong "$lab: no '$1' in: $(cat "$W/said")"
}

# breaks WHAT [SECONDS]: the same by the lab's first row.
breaks() {
    [ -z "$FULL" ] || { graded "$@"; return; }
    awk '!/^(score|wrong|hint) / || (/^score/ && !rows++)' "book/labs/$lab.lab" >"$W/$lab.lab"
    LABWORK=$W HELD=yes SEED= LAUNCH= LIMIT=${2:-60} sh book/labs/grade.sh "$W/$lab.lab" \
        >"$W/said" 2>&1 && wrong "$lab: exit status 0 for $1"
    grep -qF "$1" "$W/said" && holds || wrong "$lab: no '$1' in: $(cat "$W/said")"
}

# Nothing that others need is made of a student's file; and what was built of an earlier
# one is gone when it no longer compiles.
lab=07_merge
hand_in $lab 'this is no C;'
$MAKE -n kcp-check "$B/kcp-check" 2>/dev/null | grep -q "$W\|book/labs/work" &&
    wrong "kcp-check is made of a lab's file" || holds
own=$B/grade/$lab-$(realpath "$file" | cksum | cut -d' ' -f1)
mkdir -p "$own"
touch "$own/lab.so"
graded "$file:$line:"
[ ! -e "$own/lab.so" ] && holds || wrong "an old $own/lab.so is left"
hand_in $lab 'abort();';                        breaks "$file:$line: ABRT: abort();"
hand_in $lab 'next[0][V + 100000000] = 1;';     breaks "$file:$line: index 1"
hand_in $lab 'for (;;) ;';                      breaks "$file:$line: it was here" 2
hand_in $lab 'return ref_merge(NULL);';         graded "calls ref_merge"
hand_in $lab 'return not_mine(next);';          graded "calls not_mine"
hand_in $lab '((double *)map)[0] = 1;';         breaks 'wrote into input maps'
# It neither ends the judge, nor speaks in its place, nor leaves processes, nor fills
# the disk.
hand_in $lab 'extern int puts(const char *); puts("1 passed, 0 failed"); exit(0);'
graded "calls exit"
hand_in $lab 'extern int fork(void); fork();';  graded "calls fork"
hand_in $lab 'extern int puts(const char *); for (;;) puts("and again");'
breaks "it prints without end"
[ "$(wc -c <"$own/out.1")" -lt 17000000 ] && holds || wrong "megabytes are left"
hand_in $lab 'extern int close(int); close(1); close(2);'
graded "calls close"
# Scores cannot be forged: words that look like a verdict, a raw system call behind them,
# the judge's own twin through the linker's section, the reference by another name, code
# that runs when the file is loaded, machine code as data.
hand_in $lab 'extern void errx(int, const char *, ...); errx(0, "1 passed, 0 failed");'
graded "calls errx"
hand_in $lab '__asm__ volatile("syscall" :: "a"(231), "D"(0));'; graded "has asm"
hand_in $lab 'extern const struct kcp_variant *const __start_kcp_variants[], *const __stop_kcp_variants[]; extern int puts(const char *); if (__stop_kcp_variants - __start_kcp_variants > 1) puts("found");'
graded "calls __st"
cat >"$file" <<'END'
#define ref_merge mine
#define ref_mapops lab_mapops
#include "ref/07_merge.c"
static int run(void *args) { return mine(args); }
KCP_VARIANT(lab_07_merge_lab) = { "07_merge", "lab", "", KCP_F64, KCP_HOST, "", run, NULL };
END
graded "includes ref/07_merge.c"
hand_in $lab ';'
printf '__attribute__((constructor)) static void first(void) { puts("1 passed, 0 failed"); }\n' \
    >>"$file"
sed -i '1i #include <stdio.h>' "$file"
graded "a constructor"
hand_in $lab ';'
printf '__attribute__((section(".text"))) const unsigned char code[] = { 15, 5 };\n' >>"$file"
graded "data as code"
hand_in $lab 'extern int puts(const char *); puts("1 passed, 0 failed, 0 skipped");'
breaks "Score: 0/"

# What is asked for is not the library's own: a file that leaves it out has nothing.
lab=15_blelloch
hand_in $lab ';'
printf '#include "15_scan.h"\n' >"$file"
graded "has no scan_up scan_down scan_updates"
lab=07c_chain
hand_in $lab ';'
printf '#include "kcp.h"\n' >"$file"
graded "has no form_chain"
hand_in $lab 'static int chain_run(const struct fold *f) { return form_scan.run(f); }'
graded "calls form_scan"
hand_in $lab 'static int chain_run(const struct fold *f) { return f->x->comm->all_gather(f->x->comm, f->x->work, f->x->work, 8, NULL); }'
graded "a chain gathers nothing"
hand_in $lab 'extern void errx(int, const char *, ...); static int chain_run(const struct fold *f) { errx(0, "1 passed, 0 failed"); }'
graded "calls errx"
# Two ranks that both send first: thread ranks keep what is sent, but NCCL would hang.
src=comm/form/chain.c
awk '/^[ \t]*\/\/< chain/ { on = 0 } on
    /^[ \t]*\/\/> chain/ { on = 1 }' $src >"$W/grouped"
sed 's/= err ? err : x->comm->group.*/= err;/; s/err = group_end(.*/;/' "$W/grouped" >"$W/fill"
[ "$(diff "$W/grouped" "$W/fill" | grep -c '^>')" = 2 ] ||
    wrong "$lab: its group is opened and closed otherwise"
rm -f "$W"/*.c
awk -v fill="$W/fill" -f book/labs/new.awk book/labs/$lab.lab $src >"$W/$lab.c"
graded "over NCCL a send ends when it is received"
# A survivor that is right, or that answers n/a, is none.
lab=07m_mutant
hand_in $lab 'return KCP_NA;';                  graded "wrong in too few cases"

# Two gradings at once from one checkout: each its own score.
rm -f "$W"/*.c
mkdir -p "$W/a" "$W/b"
whole() {                                               # LAB EDIT TO: the right file, edited
    src=$(sed -n 's/^file *//p' "book/labs/$1.lab")
    region=$(sed -n 's/^region *//p' "book/labs/$1.lab")
    awk -v r="$region" '/^[ \t]*\/\/< / && $2 == r { on = 0 } on
        /^[ \t]*\/\/> / && $2 == r { on = 1 }' "$src" | sed "$2" >"$W/fill"
    awk -v fill="$W/fill" -f book/labs/new.awk "book/labs/$1.lab" "$src" >"$3"
}
whole 04_chunk '' "$W/a/04_chunk.c"
whole 04_chunk 's/S\[i\]\[v\] \*= decay;/;/' "$W/b/04_chunk.c"
for who in a b; do
    $MAKE --no-print-directory -s grade B="$B" LAB=04 LABWORK="$W/$who" SEED= STAFF= \
        LAUNCH= >"$W/said.$who" 2>&1 &
done
wait
grep -q '^Score: 6/6' "$W/said.a" && grep -q '^Score: 0/6' "$W/said.b" && holds ||
    wrong "two at once: $(grep Score "$W/said.a" "$W/said.b")"
grep -q 'hint: .* does not fade the state' "$W/said.b" && holds ||
    wrong "no hint: $(cat "$W/said.b")"
# A fold that takes every column and pitch for the whole: its own row fails.
if [ -n "$FULL" ]; then
whole 07_merge 's/map\[i\]\[v0 + v\]/map[i][v]/; s/p \* ld + v/p * Vb + v/' "$W/a/07_merge.c"
$MAKE --no-print-directory -s grade B="$B" LAB=07_merge LABWORK="$W/a" SEED= STAFF= LAUNCH= \
    >"$W/said" 2>&1
grep -q '^Score: 6/7' "$W/said" && holds || wrong "v0 and ld: $(grep Score "$W/said")"
fi

# A folder of submissions: a table; a second run makes nothing again; an array shares it.
mkdir -p "$W/in/ada" "$W/in/bob"
cp "$W/a/04_chunk.c" "$W/in/ada/"
cp "$W/b/04_chunk.c" "$W/in/bob/"
echo 'this is no C;' >"$W/in/eve.c"
# A link to another's file is no hand-in; a name may have what JSON and sed have words for.
mkdir "$W/in/mal" "$W/in/o\"k & s"
ln -s ../ada/04_chunk.c "$W/in/mal/04_chunk.c"
cp "$W/in/eve.c" "$W/in/o\"k & s/04_chunk.c"
all() { $MAKE --no-print-directory -s grade-all B="$B" LAB=04 DIR="$W/in" SEED= STAFF= >"$W/said" 2>&1; }
all && [ "$(cut -f1,3 "$W/in/.graded/04_chunk/table.tsv" | tr '\t\n' ' ,')" = \
    'name score,ada 6,bob 0,eve 0,mal 0,o"k & s 0,' ] && holds || wrong "grade-all: $(cat "$W/said")"
all && ! grep -q '^ada' "$W/said" && holds || wrong "graded again: $(cat "$W/said")"
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))) == 5' \
    "$W/in/.graded/04_chunk/all.json" 2>/dev/null && holds || wrong "all.json is no JSON"
rm -rf "$W/in/.graded"
SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_COUNT=5 all
[ "$(ls "$W/in/.graded/04_chunk"/*.key | wc -l)" = 1 ] && holds || wrong "an array's task took all"
lab=07b_check
hand_in $lab 'return *(volatile int *)0;';      graded "$file:$line: load of null"
# Which fold it is cannot be told by where its code lies: one address for all.
hand_in $lab 'extern int printf(const char *, ...); printf("%p;", (void *)merge); return 1;'
graded "Score: 2/8"
own=$B/grade/$lab-$(realpath "$file" | cksum | cut -d' ' -f1)
[ "$(cat "$own"/out.[1-6] | grep -o '0x[0-9a-f]*;' | sed 's/.*\(....\)/\1/' | uniq -c | awk '{ print $1 }')" = 6 ] &&
    holds || wrong "folds have addresses of their own: $(cat "$own"/out.[1-6])"
# A file of the grader's that it includes is not shown, and no compiler runs for ever.
lab=02_gate
hand_in $lab ';'
echo 'lab 02, a row that nobody has seen' >"$W/rows"
printf '#include "%s"\n' "$W/rows" >>"$file"
graded "includes $W/rows"
grep -q 'nobody' "$W/said" && wrong "a file of the grader's is shown: $(cat "$W/said")" || holds
hand_in $lab ';'
printf '#define A 1\n#include "/dev/zero"\n' >>"$file"
graded "Score: 0/6"

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
mkdir -p "$W/k"
cat >"$W/k/bench" <<'END'
#!/bin/sh
echo '# copy 4.27 TB/s; T=8192'
echo '05_affine                  v1_column                 1000.0   990.0  1010.0'
echo '05_affine                  v3_group_sm90              440.0   430.0   450.0'
echo "05_affine                  lab                        $MINE   880.0   900.0"
END
chmod +x "$W/k/bench"
for want in '900 v1_column 0.95 ok yours 900.0 us, v1_column 1000.0 us' \
    '1100 v1_column 0.95 slower yours 1100.0 us, v1_column 1000.0 us' \
    '880 best 0.5 ok yours 880.0 us, v3_group_sm90 440.0 us' \
    '890 best 0.5 slower yours 890.0 us, v3_group_sm90 440.0 us'; do
    # shellcheck disable=SC2086
    said=$(set -- $want; B=$W dir=$W/k ext=cu stage=05_affine out=$W/said MINE=$1
           export MINE; get() { :; }; . book/labs/rows.sh; make_it() { :; }; add() { echo "$3 $4"; }
           speed title 1 "$2" "$3" 2>&1)
    [ "$said" = "${want#* * * }" ] && holds || wrong "speed says '$said', not '$want'"
done
# After a row that was lost by its numbers no time counts.
said=$(B=$W dir=$W/k ext=cu stage=05_affine out=$W/said MINE=1 lost=yes; export MINE
       get() { :; }; . book/labs/rows.sh; make_it() { :; }; add() { echo "$3 $4"; }
       speed title 1 best 0.5 2>&1)
[ "$said" = "failed its numbers are wrong: no time counts" ] && holds || wrong "speed says '$said'"
# What the student's code prints there is no row: one of its own behind the true one, the
# true one hidden behind a word, an end before it.
for line in "echo '05_affine                  lab                          1.0     1.0     1.0'" \
    "printf word; echo '05_affine         lab  900.0'; echo '05_affine         lab   1.0'" \
    "echo '05_affine         lab   1.0'; exit 134"; do
    sed '/ lab /d' "$W/k/bench" >"$W/k/honest"
    { [ "${line#printf}" != "$line" ] && cat "$W/k/honest" || cat "$W/k/bench"; echo "$line"; } \
        >"$W/k/bench.new"
    cp "$W/k/bench" "$W/k/kept"; cat "$W/k/bench.new" >"$W/k/bench"
    said=$(B=$W dir=$W/k ext=cu stage=05_affine out=$W/said MINE=900; export MINE
           get() { :; }; . book/labs/rows.sh; make_it() { :; }; add() { echo "$3 $4"; }
           speed title 1 best 0.5 2>&1)
    case $said in failed*) holds ;; *) wrong "a row that is printed: '$said'" ;; esac
    cat "$W/k/kept" >"$W/k/bench"
done
for d in "$B"/grade/*/; do
    case $(cat "$d/work" 2>/dev/null) in "$W"/*) rm -rf "$d" ;; esac
done
echo "labs.sh: $passed as it should be, $failed not"
[ $failed = 0 ]
