# processes.mk -- kcp-check from outside: its words, and ranks that are processes.

test_needs   += $B/kcp-check
test_scripts += tests/cli/cli.sh tests/cli/lies.sh tests/cli/processes.sh tests/cli/slurm.sh
.PHONY: test-processes
test-processes: $B/kcp-check
	@sh tests/cli/processes.sh $B
