# cuda.mk -- compiles the .cu files, if CUDA is found, for the architectures in ARCH.
#
# Portable files compile for any ARCH from sm_80. Hopper-only files, *_sm90.cu, compile
# for sm_90a, and are omitted if ARCH does not list sm_90a. NCCL_HOME has NCCL's headers
# in include/. NCCL is not linked: nccl_start.c opens it (the rpath has NCCL_HOME/lib).

ifneq ($(CUDA_HOME),none)
nvcc       := $(CUDA_HOME)/bin/nvcc
sm          = $(patsubst sm_%,%,$1)
gencode    := $(foreach a,$(ARCH),-gencode arch=compute_$(call sm,$a),code=sm_$(call sm,$a))
hopper     := $(wildcard cuda/*/*_sm90.cu cuda/*/*/*_sm90.cu)
kernels    := $(filter-out $(hopper) cuda/host/memory.cu,$(wildcard cuda/*/*.cu cuda/*/*/*.cu)) $(if $(filter sm_90a,$(ARCH)),$(hopper))
NVFLAGS    := -std=c++17 -O3 -lineinfo -Iref -I. -Xcompiler -Wall,-fPIC,-fvisibility=hidden -Xptxas -warn-spills
cuda_lib_obj := $(patsubst %.cu,$B/%.cu.o,$(kernels))
NVFLAGS    += $(if $(filter-out 0,$(KCP_JITTER)),-DKCP_JITTER)
cuda_obj   := $(cuda_lib_obj) $B/cuda/host/memory.cu.o
comma      := ,
ifneq ($(filter sm_90a,$(ARCH)),)
NVFLAGS    += -DKCP_HOPPER
$B/%_sm90.cu.o: gencode := -gencode arch=compute_90a,code=sm_90a
endif
NCCL_HOME  ?= $(patsubst %/include/nccl.h,%,$(firstword \
                $(wildcard $(patsubst %,%/include/nccl.h,$(CUDA_HOME) /usr/local /usr)) none))
nccl       := $(filter-out none,$(NCCL_HOME))
cuda_cflags := -DKCP_WITH_CUDA $(if $(filter sm_90a,$(ARCH)),-DKCP_HOPPER) -isystem $(CUDA_HOME)/include \
               $(if $(nccl),-DKCP_WITH_NCCL $(if $(filter /usr,$(nccl)),,-isystem $(nccl)/include))
cuda_ldlibs := -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib64/stubs -lcudart -lstdc++ -ldl \
               -Wl,-rpath,$(CUDA_HOME)/lib64 $(addprefix -Wl$(comma)-rpath$(comma),$(addsuffix /lib,$(nccl)))

$B/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "  nvcc $<"
	@$(nvcc) $(NVFLAGS) $(gencode) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
endif
