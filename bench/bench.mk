# bench.mk -- builds kcp-bench; runs the kernels under compute-sanitizer.

benchobj := $(call obj,$(wildcard bench/bench/*.c bench/bench/*.cu))
$(filter %.cu.o,$(benchobj)): $(nvcc_at)
$B/kcp-bench: $(core) $(benchobj) $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(cuda_ldlibs) -lcublas -o $@

.PHONY: bench
ifneq ($(CUDA_HOME),none)
test_needs   += $(if $(wildcard $(CUDA_HOME)/include/cublas_v2.h),$B/kcp-bench)
bench: $B/kcp-bench
	@if nvidia-smi -L >/dev/null 2>&1; then $B/kcp-bench --newest; \
	  else echo "no GPU found: the kernels were not timed"; fi
else
bench:
	@echo "CUDA not found (CUDA_HOME=FOLDER if it is elsewhere): the kernels were not timed"
endif

# Runs every kernel, or those of STAGE=, under compute-sanitizer in JOBS= processes.
.PHONY: sanitize
ifneq ($(CUDA_HOME),none)
# The build for sanitizers avoids what they do not support: one lane's arrival for a whole
# warp (racecheck), and stores by TMA (initcheck).
lanes := $(if $(filter sm_90a,$(ARCH)),$B/kcp-check-lanes)
lanes_obj := $(patsubst %,$B/lanes/cuda/18_hopper/%_sm90.cu.o,\
                gdn_prepare/chunk_prepare forward_scan/scan maps/maps backward/scans \
                forward_one/v5_one_kernel backward_one/v5_steps)
$B/lanes/%_sm90.cu.o: %_sm90.cu $(nvcc_at)
	@mkdir -p $(@D)
	@echo "  nvcc $< for the sanitizers"
	@$(nvcc) $(NVFLAGS) -DKCP_FOR_SANITIZERS $(gencode) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
$B/kcp-check-lanes: $(filter-out $(patsubst $B/lanes/%,$B/%,$(lanes_obj)),$(core)) \
                    $(lanes_obj) $B/tests/judge/main.o $(list_at)
	@$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(cuda_ldlibs) -o $@
sanitize: $B/kcp-check $(lanes)
	@PATH="$$PATH:$(CUDA_HOME)/bin" sh bench/sanitize.sh $B
else
sanitize:
	@echo "CUDA not found (CUDA_HOME=FOLDER if it is elsewhere): there is nothing to sanitize"; exit 1
endif
