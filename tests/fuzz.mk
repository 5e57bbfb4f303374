# fuzz.mk -- make fuzz: reads random bytes as calls of the C interface.
# clang's libFuzzer runs all files of $(B)/corpus, then mutations of the files for SECONDS=,
# with SEED= (default: a new seed each time), under the address and undefined-behaviour
# sanitizers. Without clang, one line says so.

SECONDS ?= 12
fuzz_c   = $(CFLAGS) -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
           -fno-sanitize-recover=all
fuzz_src := tests/fuzz/calls.c $(ref) $(comm) ref/base/tensor_set.c
$B/fuzz_calls: $(fuzz_src) $(wildcard ref/base/*.h tests/judge/*.h ref/*.h tests/*.h \
                  comm/*.h comm/backend/*.h)
	@mkdir -p $(@D)
	@echo "  clang $@"
	@clang $(fuzz_c) -fsanitize=fuzzer $(filter %.c,$^) -lm -lpthread -ldl -o $@

# Writes the files to start from: calls of all 16 stages, and calls that once crashed.
$B/corpus: tests/fuzz.mk
	@rm -rf $@ && mkdir -p $@
	@for s in 00 01 02 03 04 05 06 07 10 11 12 13 14 15 16 17; do printf "\\0$$s\000\001\001\003\005\000\377\002\001\000\003\001\000\010\005" \
	  >$@/$$s; done
	@for s in C34yAAIF/fsAfACEBQ== /N7QAQAAAAAAAAAA/wAACAc= ft4KQQBuIwX//wABAAAAAAA= \
	  TgEAKQE/BABOqakEAKmpFAAAAIAqAw== CwAEKf///////wEI///+/////wAa//8QAyU= \
	  ft4KQQBuIwX/BAABBf8A+gA= DTs7ETA1OwEAAAAAAAAfYWYFAAEAAQb9 \
	  AAABxsbGxsbGxvwGAMbGE8b8BgDGxhPGxsYAAwEBAQpBAG4= \
	  /N4B/////////yNA/MxudAADZ/zMbv4= \
	  C6ByYW5nZf////8LAf///v////////0AGv//EAMl; do \
	  echo $$s | base64 -d >$@/found.$$(echo $$s | cksum | cut -d' ' -f1); done

.PHONY: fuzz fuzz-clang fuzz-seconds
fuzz-seconds:
	@case '$(SECONDS)' in ''|0*|*[!0-9]*) echo "SECONDS=$(SECONDS): expected a number" >&2; \
	  exit 2 ;; esac
	@case '$(SEED)' in *[!0-9]*) echo "SEED=$(SEED): expected a number" >&2; exit 2 ;; esac
fuzz: fuzz-seconds
	@if echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | \
	  clang -x c - -fsanitize=fuzzer -o /dev/null 2>/dev/null; \
	then $(MAKE) --no-print-directory fuzz-clang; \
	else echo "make fuzz: libFuzzer (clang) not found: nothing was run"; fi
fuzz-clang: $B/fuzz_calls $B/corpus
	@mkdir -p $B/found; log=$B/found.log; \
	$B/fuzz_calls -seed=$(or $(SEED),0) -max_total_time=$(SECONDS) -max_len=4096 \
	  -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
	  -artifact_prefix=$B/found/ $B/found $B/corpus >$$log.out 2>$$log || { tail -30 $$log; exit 1; }; \
	sed -n "s/^stat::number_of_executed_units: */fuzz_calls, $(SECONDS) s: /p" $$log
