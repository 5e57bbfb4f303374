# fuzz.mk -- make fuzz: reads random bytes as calls of the C interface.
# A plain mutator, compiled by $(CC), always runs. If clang is found, libFuzzer also runs,
# for SECONDS= per target, with SEED= (default: a new seed each time). The fuzzers run under
# the address and undefined-behaviour sanitizers, and start from files in $(B)/corpus.

SECONDS ?= 12
fuzz_c   = $(CFLAGS) -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
           -fno-sanitize-recover=all
fuzz_all         := calls
fuzz_calls_src   := $(ref) $(comm) ref/base/tensor_set.c
fuzz_head        := $(wildcard ref/base/*.h tests/judge/*.h ref/*.h \
                      tests/*.h comm/*.h comm/backend/*.h)

define fuzz_rules
$B/replay_$1: tests/fuzz/$1.c $(fuzz_$1_src) tests/fuzz/main.c $(fuzz_head)
$B/fuzz_$1: tests/fuzz/$1.c $(fuzz_$1_src) $(fuzz_head)
endef
$(foreach t,$(fuzz_all),$(eval $(call fuzz_rules,$t)))
$(fuzz_all:%=$B/replay_%):
	@mkdir -p $(@D)
	@echo "  cc $@"
	@$(CC) $(fuzz_c) $(filter %.c,$^) -lm -lpthread -ldl -o $@
$(fuzz_all:%=$B/fuzz_%):
	@mkdir -p $(@D)
	@echo "  clang $@"
	@clang $(fuzz_c) -fsanitize=fuzzer $(filter %.c,$^) -lm -lpthread -ldl -o $@

# Writes the files to start from: calls of all 16 stages, and calls that once crashed.
$B/corpus: tests/fuzz.mk
	@rm -rf $@ && mkdir -p $(fuzz_all:%=$@/%)
	@for s in 00 01 02 03 04 05 06 07 10 11 12 13 14 15 16 17; do printf "\\0$$s\000\001\001\003\005\000\377\002\001\000\003\001\000\010\005" \
	  >$@/calls/$$s; done
	@for s in C34yAAIF/fsAfACEBQ== /N7QAQAAAAAAAAAA/wAACAc= ft4KQQBuIwX//wABAAAAAAA= \
	  TgEAKQE/BABOqakEAKmpFAAAAIAqAw== CwAEKf///////wEI///+/////wAa//8QAyU= \
	  ft4KQQBuIwX/BAABBf8A+gA= DTs7ETA1OwEAAAAAAAAfYWYFAAEAAQb9 \
	  AAABxsbGxsbGxvwGAMbGE8b8BgDGxhPGxsYAAwEBAQpBAG4= \
	  /N4B/////////yNA/MxudAADZ/zMbv4= \
	  C6ByYW5nZf////8LAf///v////////0AGv//EAMl; do \
	  echo $$s | base64 -d >$@/calls/found.$$(echo $$s | cksum | cut -d' ' -f1); done

.PHONY: fuzz fuzz-clang fuzz-seconds
fuzz-seconds:
	@case '$(SECONDS)' in ''|0*|*[!0-9]*) echo "SECONDS=$(SECONDS): expected a number" >&2; \
	  exit 2 ;; esac
	@case '$(SEED)' in *[!0-9]*) echo "SEED=$(SEED): expected a number" >&2; exit 2 ;; esac
fuzz: fuzz-seconds $(fuzz_all:%=$B/replay_%) $B/corpus
	@$(MAKE) --no-print-directory $(at_once) $(fuzz_all:%=fuzz-replay-%)
	@if echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | \
	  clang -x c - -fsanitize=fuzzer -o /dev/null 2>/dev/null; \
	then $(MAKE) --no-print-directory fuzz-clang; \
	else echo "libFuzzer (clang) not found: only the plain mutator ran"; fi
fuzz-clang: $(fuzz_all:%=$B/fuzz_%) $B/corpus
	@$(MAKE) --no-print-directory $(at_once) $(fuzz_all:%=fuzz-guided-%)
fuzz-replay-%:
	@out=$$($B/replay_$* 5 $B/corpus/$*/*) || { echo "replay_$*: $$out"; exit 1; }; \
	echo "replay_$*: $$out"
fuzz-guided-%:
	@mkdir -p $B/found/$*; log=$B/found/$*.log; \
	$B/fuzz_$* -seed=$(or $(SEED),0) -max_total_time=$(SECONDS) -max_len=4096 \
	  -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 -artifact_prefix=$B/found/ $B/found/$* \
	  $B/corpus/$* >$$log.out 2>$$log || { tail -30 $$log; exit 1; }; \
	sed -n "s/^stat::number_of_executed_units: */fuzz_$*, $(SECONDS) s: /p" $$log
