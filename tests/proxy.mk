# proxy.mk -- finds missing proxy fences in PTX; compiles kernels with sleeps, without waits.

ifneq ($(filter sm_90a,$(ARCH)),)
ifneq ($(CUDA_HOME),none)
ptx := $(patsubst %.cu,$B/ptx/%.ptx,$(filter-out cuda/18_hopper/v%,$(hopper)))
$B/ptx/%.ptx: %.cu $(nvcc_at)
	@mkdir -p $(@D)
	@echo "  ptx $<"
	@$(nvcc) $(filter-out -Xptxas -warn-spills,$(NVFLAGS)) \
	  -gencode arch=compute_90a,code=compute_90a -MMD -MP -MF $(@:.ptx=.d) -ptx $< -o $@
# Compiles the sm_90a kernels with random sleeps (cuda/tile/jitter.cuh).
# tests/cli/jitter.sh sets WITHOUT= to a folder with objects that replace some kernels.
jitter_obj := $(patsubst %.cu,$B/jitter/%.cu.o,$(hopper) $(wildcard cuda/*/v2_tiles_f32.cu) \
                cuda/18_hopper/adapted/v6_adapted.cu)
$B/jitter/%.cu.o: %.cu $(nvcc_at)
	@mkdir -p $(@D)
	@echo "  nvcc $< with sleeps"
	@$(nvcc) $(NVFLAGS) -DKCP_JITTER -gencode arch=compute_90a,code=sm_90a -MMD -MP \
	  -MF $(@:.o=.d) -c $< -o $@
asleep = $(filter-out $(patsubst $B/jitter/%,$B/%,$(jitter_obj)),$(core)) \
         $B/tests/judge/main.o $1
$B/kcp-check-jitter: $(call asleep,$(jitter_obj)) $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(cuda_ldlibs) -o $@
# Compiles kernels with sleeps, of which one wait can be left out (cuda/tile/omit.cuh).
# Kernels for f16 have the same source lines as the kernels for bf16.
omit_obj := $(patsubst %.cu,$B/omit/%.cu.o,$(filter-out %_f16_sm90.cu,$(hopper)) \
  $(wildcard cuda/1[5-7]*/*.cu cuda/*/v2_tiles_f32.cu) tests/proxy/poison.cu)
$B/omit/%.cu.o: %.cu $(nvcc_at)
	@mkdir -p $(@D)
	@echo "  nvcc $< with sleeps, without one wait"
	@$(nvcc) $(NVFLAGS) -DKCP_JITTER -DKCP_OMIT -gencode arch=compute_90a,code=sm_90a \
	  -MMD -MP -MF $(@:.o=.d) -c $< -o $@
$B/kcp-check-omit: $(filter-out $(patsubst $B/omit/%,$B/%,$(omit_obj)),$(core)) $(omit_obj) \
  $B/tests/proxy/omit.o $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) -Wl,--wrap=cudaLaunchKernelExC,--wrap=__cudaLaunchKernel,--wrap=cudaDeviceGetAttribute,--wrap=leftovers_fill \
	  $(LDLIBS) $(cuda_ldlibs) -o $@
ifneq ($(WITHOUT),)
lacking = $(or $(wildcard $(WITHOUT)/$(patsubst $B/jitter/%,%,$1)),$1)
$(WITHOUT)/kcp-check: $(call asleep,$(foreach o,$(jitter_obj),$(call lacking,$o)))
	@$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(cuda_ldlibs) -o $@
endif
endif
endif
.PHONY: proxy
proxy: $(ptx)
	@sh tests/cli/proxy.sh $B --plant
test_needs   += $(if $(FULL),$(ptx))
test_scripts += $(if $(FULL),tests/cli/proxy.sh)
