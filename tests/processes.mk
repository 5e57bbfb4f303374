# processes.mk -- the process tests without a GPU: plain processes, and mpirun when found.

test_needs   += $B/kcp-check
test_scripts += tests/processes.sh
.PHONY: test-processes
test-processes: $B/kcp-check
	@sh tests/processes.sh $B
