# fuzz.mk -- make fuzz: the .npy reader and the plan against any bytes.   SECONDS=
# With clang: libFuzzer, guided by coverage. Always: a plain mutator, by $(CC). Both
# under the address and undefined-behaviour sanitizers, from seeds that the build makes.

SECONDS ?= 30
fuzz_c   = $(CFLAGS) -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
           -fno-sanitize-recover=all
fuzz_npy_src  := tests/fuzz/npy.c tests/npy/read.c tests/npy/head.c tests/npy/write.c
fuzz_plan_src := tests/fuzz/plan.c ref/06_plan.c

$B/replay_npy: $(fuzz_npy_src) tests/fuzz/main.c tests/npy/npy.h
$B/replay_plan: $(fuzz_plan_src) tests/fuzz/main.c ref/kcp.h
$B/fuzz_npy: $(fuzz_npy_src) tests/npy/npy.h
$B/fuzz_plan: $(fuzz_plan_src) ref/kcp.h
$B/replay_npy $B/replay_plan:
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(fuzz_c) $(filter %.c,$^) -lm -o $@
$B/fuzz_npy $B/fuzz_plan:
	@mkdir -p $(@D)
	@echo "  clang $@"
	@clang $(fuzz_c) -fsanitize=fuzzer $(filter %.c,$^) -lm -o $@

# Seeds: arrays of every dtype, and of sizes that wrap; plans of steps, one a legal one
# with cuts.
huge := {'descr': '<f8', 'fortran_order': False, 'shape':
$B/corpus: $B/kcp-arrays tests/fuzz.mk
	@rm -rf $@ && mkdir -p $@/npy $@/plan
	@for t in f8 f4 i8 i4; do for s in 3,4 7 2,0,3; do \
	  $B/kcp-arrays fill $@/npy/$$t.$$s.npy $$t $$s 1.5 || exit 1; done; done
	@sed 's/<f8/<f2/;s/(3, 4)/(12, 4)/' $@/npy/f8.3,4.npy >$@/npy/f2.npy
	@sed 's/<i4/<u2/;s/(7,)/(14,)/' $@/npy/i4.7.npy >$@/npy/u2.npy
	@printf '\223NUMPY\001\000\132\000' >$@/npy/big.npy && \
	  printf "$(huge) (9223372036854775807, 4294967296, 2), }\n" \
	  >>$@/npy/big.npy
	@printf '\223NUMPY\001\000\121\000' >$@/npy/wraps.npy && \
	  printf "$(huge) (2305843009213693952, 8, 3), }\n" \
	  >>$@/npy/wraps.npy
	@printf '\003\003\004\001\004\000\000\000\005\000\007\003\004\005\001\002' \
	  >$@/plan/cuts
	@printf '\002\005\003\004\100\000\010\000\011\002\003\004\005' >$@/plan/steps
	@head -c 200 /dev/zero | tr '\000' '\007' >$@/plan/sevens

.PHONY: fuzz fuzz-clang
fuzz: $B/replay_npy $B/replay_plan $B/corpus
	@for t in npy plan; do \
	  printf 'replay_%s: ' $$t; $B/replay_$$t 5 $B/corpus/$$t/* || exit 1; done
	@if echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | \
	  clang -x c - -fsanitize=fuzzer -o /dev/null 2>/dev/null; \
	then $(MAKE) --no-print-directory fuzz-clang; \
	else echo "libFuzzer (clang) not found: the plain mutator alone"; fi
fuzz-clang: $B/fuzz_npy $B/fuzz_plan $B/corpus
	@for t in npy plan; do mkdir -p $B/found/$$t; log=$B/found/$$t.log; \
	  $B/fuzz_$$t -max_total_time=$(SECONDS) -max_len=4096 -rss_limit_mb=2048 \
	    -print_final_stats=1 -verbosity=0 -artifact_prefix=$B/found/ $B/found/$$t \
	    $B/corpus/$$t 2>$$log || { tail -30 $$log; exit 1; }; \
	  sed -n "s/^stat::number_of_executed_units: */fuzz_$$t, $(SECONDS) s: /p" $$log; \
	done
