# The GPU's kernels: by nvcc, or by g++ for the emulation of test/emulator/.
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda) $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)))
NVCC      ?= $(CUDA_HOME)/bin/nvcc
NCCL_PARTS := $(addprefix llmc/comm/transport/,nccl nccl_end nccl_meet nccl_times nccl_verbs)
of_tests   = $(foreach p,common fp32 bf16,$(patsubst test/%.cpp,$(BUILD)/$p/test/%.o,$(wildcard $1)))
of_dev     = $(patsubst dev/%.cpp,$(BUILD)/common/dev/%.o,$(wildcard dev/cuda_*.cpp))

GOLDENS    = $(patsubst %,$(BUILD)/common/test/%.o,ptx_goldens ptx_goldens_hopper)
BY_WGMMA   = $(foreach p,fp32 bf16,$(addprefix $(BUILD)/$p/,$(filter \
             llmc/ops/cuda/attention/wgmma_% llmc/ops/cuda/products/wgmma_%,$(KERNELS:%.cu=%.o))))
BY_FP8     = $(foreach p,fp32 bf16,$(BUILD)/$p/llmc/ops/cuda/products/quantized.o)

ifeq ($(DEVICE),cuda)
# Compiled once, to the PTX of compute_80, and from that assembled for each GPU the toolkit knows. The PTX goes
# along for those that come later. 90a, 100f: code of that GPU, or family, alone, from PTX of its own.
KNOWN     := $(shell $(NVCC) --list-gpu-code 2>/dev/null)
generic    = $(patsubst %f,%,$(patsubst %a,%,$1))
GPUS      := $(strip $(foreach a,$(ARCH),$(if $(filter sm_$(call generic,$a),$(KNOWN)),sm_$a)))
DROPPED   := $(filter-out $(GPUS),$(ARCH:%=sm_%))
EMULATOR  :=
SPECIFIC  := $(filter %a %f,$(GPUS))
CODES     := compute_80$(subst $(space),,$(patsubst %,$(comma)%,$(filter-out $(SPECIFIC),$(GPUS))))
NVCC_CODE := -std=c++20 -O3 --expt-relaxed-constexpr -I. -MMD -MP -Xcompiler -Wall,-Wextra,-fopenmp \
             $(if $(WERROR),-Werror all-warnings)
FOR_GPUS  := -gencode arch=compute_80,code=[$(CODES)] \
             $(foreach a,$(SPECIFIC:sm_%=%),-gencode arch=compute_$a,code=sm_$a)
# Kernels by wgmma run on Hopper alone; the variants' supports() asks for it.
$(BY_WGMMA) $(BUILD)/common/test/ptx_goldens_hopper.o: FOR_GPUS := -gencode arch=compute_90a,code=sm_90a
# Codes of FP8 have an instruction from sm_89 on: these GPUs get PTX of their own.
BEFORE_89 := $(filter sm_80 sm_86,$(GPUS))
FROM_89   := $(filter-out $(BEFORE_89) $(SPECIFIC),$(GPUS))
codes_of   = -gencode arch=$1,code=[$1$(subst $(space),,$(patsubst %,$(comma)%,$2))]
$(BY_FP8) $(BUILD)/common/test/ptx_goldens.o: FOR_GPUS := $(call codes_of,compute_80,$(BEFORE_89)) \
    $(if $(FROM_89),$(call codes_of,compute_89,$(FROM_89))) \
    $(foreach a,$(SPECIFIC:sm_%=%),-gencode arch=compute_$a,code=sm_$a)
# COMPILE_KERNEL [PRECISION]
COMPILE_KERNEL = @echo "nvcc  $<$(if $1, ($1))" && mkdir -p $(@D) && $(CCACHE) $(NVCC) $(NVCC_CODE) $(FOR_GPUS) \
                 $(NVCCFLAGS) $(if $1,-DPRECISION=$1) -DBACKEND=cuda -c $< -o $@
OVER_CUDA := -I$(CUDA_HOME)/include                                  # of tests and tools that call kernels
$(of_dev): EXTRA = $(OVER_CUDA)
$(NCCL_PARTS:%=$(BUILD)/common/%.o): EXTRA = $(NCCL_FLAGS)
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcublas -lcublasLt -lcudart $(NCCL_LIBS) -Wl,-rpath,$(CUDA_HOME)/lib64
else
EMULATOR  := $(wildcard test/emulator/*.cpp)
EMULATE   := -DCUDA_EMU -Itest/emulator/include -fno-strict-aliasing -Wno-unknown-pragmas -Wno-attributes \
             -Wno-conversion -g1 -O2
OVER_CUDA := $(EMULATE)
WATCHED   := $(if $(SANITIZE),,-fsanitize=thread,alignment)
COMPILE_KERNEL = $(call COMPILE,$1)
$(foreach p,common fp32 bf16,$(KERNELS:%.cu=$(BUILD)/$p/%.o) $(EMULATOR:%.cpp=$(BUILD)/$p/%.o)) \
    $(call of_tests,test/emulated/*.cpp) $(of_dev) \
    $(GOLDENS): EXTRA = $(EMULATE)
PLANTED   := $(patsubst %,$(BUILD)/common/test/emulator/%.o,planted planted_hopper planted_wgmma)
$(PLANTED): EXTRA = $(EMULATE) $(WATCHED)
# of maps as parameters
$(BY_WGMMA) $(PLANTED) $(GOLDENS) $(call of_tests,test/emulated/emulator_hopper*.cpp): EXTRA += -Wno-psabi
# Ranges of profilers need one real header, where there is a CUDA toolkit.
NVTX      := $(if $(wildcard $(CUDA_HOME)/include/nvtx3/nvToolsExt.h),-idirafter $(CUDA_HOME)/include)
$(foreach p,fp32 bf16,$(BUILD)/$p/llmc/ops/cuda/timing.o) \
    $(BUILD)/common/test/emulated/emulated_trace.o: EXTRA += $(NVTX)
ifeq ($(DEVICE),emulated)
$(NCCL_PARTS:%=$(BUILD)/common/%.o): EXTRA = $(EMULATE) $(if $(filter 0,$(NCCL)),,-DHAVE_NCCL)
endif
endif

# what a program of this build holds, for llmc/ops/cuda/device/guard.cu
ALL    := sm_80 sm_86 sm_89 sm_90 sm_100 sm_120
HELD   := $(subst $(space),$(comma)$(space),$(or $(strip $(GPUS)),$(ALL))), PTX of compute_80
GUARDS := $(BUILD)/common/llmc/ops/cuda/device/guard.o $(BUILD)/checks/common/llmc/ops/cuda/device/guard.o
$(GUARDS): EXTRA += -DCUDA_ARCHS='"$(HELD)"'
$(GUARDS): NVCC_CODE += -DCUDA_ARCHS='"$(HELD)"'

define kernel_rules
$$(BUILD)/$1/llmc/ops/cuda/%.o: llmc/ops/cuda/%.cu $$(BUILD)/found.mk
	$$(call COMPILE_KERNEL,$(filter-out common,$1))
endef
$(foreach p,common fp32 bf16,$(eval $(call kernel_rules,$p)))
$(GOLDENS): $(BUILD)/common/%.o: %.cu $(BUILD)/found.mk
	$(call COMPILE_KERNEL,)
GRADED := $(patsubst %.cu,$(BUILD)/common/%.o,$(wildcard dev/cuda/*.cu))
$(GRADED): $(BUILD)/common/%.o: %.cu $(BUILD)/found.mk
	$(call COMPILE_KERNEL,)
$(GRADED): EXTRA = $(EMULATE) $(WATCHED)                            # their plain accesses are counted too
$(BUILD)/libcuda.a: $(call objects,$(KERNELS) $(EMULATOR),$(if $(SANITIZE),$(TEST_PRECISIONS)))
	@rm -f $@ && ar rcs $@ $^

# The kernels once more, for tests in $(BUILD)/checks/test: every access is looked at (bounds, races, what was
# never written), and lines that run are counted.
CHECKS := $(BUILD)/checks
$(CHECKS)/%.o: EXTRA = $(EMULATE) $(WATCHED) --coverage -fprofile-update=single
$(call compile_each,$(CHECKS))
$(CHECKS)/libcuda.a: $(patsubst $(BUILD)/%,$(CHECKS)/%,$(call objects,$(KERNELS),$(TEST_PRECISIONS))) \
    $(call objects,$(EMULATOR))
	@rm -f $@ && ar rcs $@ $^

# A CPU build tests the trainer over the emulated kernels too: all but what is numeric is its own.
EMULATED  := $(BUILD)/emulated
ON_KERNELS = $(filter-out llmc/ops/cpu/%,$(filter $(NUMERIC),$(SOURCES)))
$(EMULATED)/%.o: BACKEND := cuda
$(EMULATED)/%.o: HOST_FLAGS += $(COLDLY)
$(call compile_each,$(EMULATED))
$(NCCL_PARTS:%=$(EMULATED)/common/%.o): EXTRA = $(EMULATE) -DHAVE_NCCL
OF_KERNELS = $(foreach p,fp32 bf16,$(patsubst %,$(EMULATED)/$p/%.o,$(basename $(call united,$(ON_KERNELS))))) \
             $(NCCL_PARTS:%=$(EMULATED)/common/%.o)
OF_ITS_OWN = $(filter-out $(patsubst %,$(BUILD)/common/%.o,llmc/base/host/version $(NCCL_PARTS)),$(call \
             objects,$(filter-out $(ON_KERNELS),$(SOURCES))))
$(EMULATED)/train_gpt: $(EMULATED)/common/llmc/main.o
$(EMULATED)/cuda_kernels: $(EMULATED)/common/dev/cuda_kernels.o
$(EMULATED)/common/dev/cuda_kernels.o: EXTRA = $(EMULATE)
$(EMULATED)/common/llmc/base/host/version.o: $(BUILD)/commit
$(EMULATED)/common/llmc/base/host/version.o: EXTRA = $(call of_version,emulated)
$(EMULATED)/train_gpt $(EMULATED)/cuda_kernels: $(OF_KERNELS) $(OF_ITS_OWN) \
    $(EMULATED)/common/llmc/base/host/version.o $(BUILD)/fp64/llmc/comm/reductions.o $(BUILD)/libcuda.a
	$(LINK)
