# processes.mk -- kcp-check from outside: its words, and ranks that are processes.

# Whom ranks must stand: strangers, and ranks that misbehave.
$B/kcp-stranger: $(call obj,$(ref) $(comm) tests/cli/stranger.c) $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) -lpthread -lm -ldl $(cuda_ldlibs) -o $@

# The judge whose GPU is memory of the host's, and waits as long as it may.
ifneq ($(cuda_cflags),)
far_calls := Malloc Free Memset MemsetAsync Memcpy MemcpyAsync Memcpy2D StreamSynchronize \
             DeviceSynchronize GetLastError SetDevice GetDevice GetDeviceCount \
             StreamCreateWithFlags StreamDestroy
$B/kcp-check-far: $(core) $B/tests/judge/main.o $B/tests/cli/far_gpu.o $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) $(far_calls:%=-Wl,--wrap=cuda%) $(LDLIBS) \
	  $(cuda_ldlibs) -o $@
test_needs   += $B/kcp-check-far
endif
test_needs   += $B/kcp-check $B/kcp-stranger
test_scripts += tests/cli/house.sh tests/cli/cases.sh tests/cli/cli.sh \
                tests/cli/generated.sh tests/cli/processes.sh tests/cli/wrong_comm.sh \
                tests/cli/far.sh tests/cli/run_processes.sh tests/cli/slurm.sh \
                tests/cli/lies.sh tests/cli/network.sh
# Ranks as threads and as processes under the thread sanitizer, which must first find a
# race that is there. Some minutes: the forms of chapter 07 take the longest.
.PHONY: sanitize-threads
tsan := TSAN_OPTIONS=exitcode=66
sanitize-threads:
	@$(MAKE) --no-print-directory $(at_once) B=build/tsan CUDA_HOME=none \
	  EXTRA="-fsanitize=thread -O1" build/tsan/kcp-check build/tsan/kcp-stranger
	@$(tsan) build/tsan/kcp-stranger race 2>/dev/null; [ $$? = 66 ] || \
	  { echo "the thread sanitizer does not see a race that is there"; exit 1; }
	@$(tsan) sh tests/cli/processes.sh build/tsan
	@$(tsan) sh tests/cli/network.sh build/tsan
	@$(tsan) build/tsan/kcp-check --quiet --stage 07

# The same in a minute or two, for .ci/run: threads, the meeting, messages, a lost rank.
.PHONY: sanitize-threads-quick
sanitize-threads-quick:
	@$(MAKE) --no-print-directory $(at_once) B=build/tsan CUDA_HOME=none \
	  EXTRA="-fsanitize=thread -O1" build/tsan/kcp-check build/tsan/kcp-stranger \
	  build/tsan/stand_in/kcp-stand-in
	@sh tests/cli/races.sh build/tsan
	@$(tsan) sh tests/cli/nccl_stand_in.sh build/tsan few

.PHONY: test-processes
test-processes: $B/kcp-check $B/kcp-stranger
	@sh tests/cli/processes.sh $B && sh tests/cli/network.sh $B

# Mistakes at random places of FILES, N of them: does the judge see them?
N ?= 20
.PHONY: mutate
mutate: $B/kcp-check
	@CC="$(CC)" sh tests/mutate.sh $B $(N) $(or $(SEED),1) $(or $(FILES),\
	  $(filter-out comm/backend/nccl%,$(wildcard ref/[0-9]*.c ref/core/*.c comm/*.c \
	  comm/*/*.c cuda/*/vB_blas*.c)))
