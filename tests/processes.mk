# processes.mk -- programs for the scripts of tests/cli/; thread sanitizer; mutation tests.

# kcp-wrong-calls makes wrong calls, with MPI messages of at most 1,000 bytes.
$B/pieces/mpi.o: comm/backend/mpi.c $(flags_at) $(mpi_at)
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $(mpi_flags) -DKCP_MPI_PIECE=1000 -MMD -MP -c $< -o $@
$B/kcp-wrong-calls: $(call obj,$(ref) $(comm) tests/cli/wrong_calls.c \
                    comm/backend/mpi_launch.c) $B/pieces/mpi.o $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) -lpthread -lm -ldl $(mpi_libs) $(cuda_ldlibs) -o $@

test_needs   += $B/kcp-check $B/kcp-wrong-calls $B/libkcp.so
test_scripts += tests/cli/house.sh tests/cli/cases.sh tests/cli/cli.sh \
                tests/cli/mpi.sh tests/cli/wrong_comm.sh tests/cli/two_hosts.sh \
                tests/cli/lies.sh
# Runs ranks as threads under the thread sanitizer. Ranks as processes run only with
# MPICC=mpicc.mpich, because Open MPI itself has races.
.PHONY: sanitize-threads sanitize-threads-quick
tsan      := TSAN_OPTIONS=exitcode=66
tsan_make  = $(MAKE) --no-print-directory $(at_once) B=build/tsan CUDA_HOME=none \
             MPICC=$(or $(filter-out mpicc,$(MPICC)),none) EXTRA="-fsanitize=thread -O1"
sanitize-threads: sanitize-threads-quick
	@$(tsan) build/tsan/kcp-check --quiet --stage 07
	@$(tsan_make) build/tsan/kcp-run build/tsan/libkcp.so build/tsan/kcp-wrong-calls
	@$(tsan) $(if $(filter-out mpicc none,$(MPICC)),STEP='$(MPICC:mpicc%=mpirun%) -n') \
	  sh tests/cli/mpi.sh build/tsan
# .ci/run calls this target, which runs 60 exchanges per form between threads.
sanitize-threads-quick:
	@$(tsan_make) build/tsan/kcp-check
	@$(tsan) build/tsan/kcp-check --exchange 60 --ranks 4

# Makes N random mistakes in FILES, one by one, and judges each mistake (tests/mutate.sh).
N ?= 20
.PHONY: mutate
mutate: $B/kcp-check
	@CC="$(CC)" sh tests/mutate.sh $B $(N) $(or $(SEED),1) $(or $(FILES),\
	  $(filter-out comm/backend/nccl%,$(wildcard ref/[0-9]*.c ref/core/*.c comm/*.c \
	  comm/*/*.c)))
