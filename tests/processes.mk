# processes.mk -- kcp-check from outside: its words, and ranks that are processes.

# Whom ranks must stand: strangers, and ranks that misbehave.
$B/kcp-stranger: $(call obj,$(ref) $(comm) tests/cli/stranger.c) $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) -lpthread -lm -ldl $(cuda_ldlibs) -o $@

test_needs   += $B/kcp-check $B/kcp-stranger
test_scripts += tests/cli/cli.sh tests/cli/lies.sh tests/cli/processes.sh \
                tests/cli/network.sh tests/cli/slurm.sh
.PHONY: test-processes
test-processes: $B/kcp-check $B/kcp-stranger
	@sh tests/cli/processes.sh $B && sh tests/cli/network.sh $B

# Mistakes at random places of FILES, N of them: does the judge see them?
N ?= 20
.PHONY: mutate
mutate: $B/kcp-check
	@CC="$(CC)" sh tests/mutate.sh $B $(N) $(or $(SEED),1) $(or $(FILES),\
	  $(wildcard ref/[0-9]*.c comm/*.c comm/*/*.c))
