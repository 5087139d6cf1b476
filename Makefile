# make                 ./train_gpt and ./tokenize for what this machine has
# make quickstart      text in, trained GPT out: one command
# make test            all tests; test-full adds sanitizers, fuzzers and the long lattices
# make check           floors, lengths, formatting, lint
# make ptxas           registers, spills and shared memory of every kernel
# make bench           speeds, as tables and as JSON under dev/results/; bench-ranks: of several ranks;
#                      bench-checkpoint: of saving and loading
# make dev-cuda        graded versions of two kernels, from naive to fast (dev/cuda/README.md)
# make coverage        lines of the CUDA backend that its emulated tests run
# make gpu-check       what scripts/gpu_check.sh runs on a GPU
# make dev/ckpt        the tool that looks at checkpoints
#
# DEVICE=cpu | cuda (where there are a GPU and nvcc) | emulated (the GPU's kernels, run by a CPU: for tests)
# ARCH=native  CPU to build for (any -march); with DEVICE=cuda the GPUs, as in ARCH="80 90"
# DNNL=0       matmul by plain loops          WERROR=1     warnings are errors (CI)
# SANITIZE=address,undefined | thread         MPI=0 NCCL=0 leave out (nothing uses them on one rank)
# PCH=0        without precompiled headers        PRECISIONS="fp32 bf16 fp64"      of tests that link fewer
# UNITY=0      each file by itself
# CUDA_HOME, NCCL_HOME: where they are, if not where they are looked for

.DEFAULT_GOAL := all

# a GPU that answers, and a compiler for it
DEVICE ?= $(if $(wildcard /dev/nvidia[0-9]* /dev/dxg),$(if $(wildcard $(or $(CUDA_HOME),/usr/local/cuda)/bin/nvcc)$(shell command -v nvcc 2>/dev/null),cuda,cpu),cpu)
DEVICE := $(DEVICE)
ifeq ($(filter cpu cuda emulated,$(DEVICE)),)
$(error DEVICE=$(DEVICE): cpu, cuda or emulated)
endif
ifeq ($(filter x86_64 amd64,$(shell uname -m)),)
$(error $(shell uname -m): the host code is written for x86-64)
endif
BACKEND    := $(if $(filter cpu,$(DEVICE)),cpu,cuda)
ARCH       ?= $(if $(filter cuda,$(DEVICE)),80 86 89 90a 100 120,native)
CPU_ARCH   := $(if $(filter cuda,$(DEVICE)),native,$(ARCH))
PYTHON     ?= /usr/bin/python3
PRECISIONS := fp32 bf16 fp64
EVERY      := fp32 bf16 fp64

comma  := ,
empty  :=
space  := $(empty) $(empty)
CCACHE := $(shell command -v ccache 2>/dev/null)
BUILD  := build/$(DEVICE)-$(subst $(space),-,$(ARCH))$(if $(filter 0,$(DNNL)),-nodnnl)$(if $(filter 0,$(MPI)),-nompi)$(if $(filter cpu,$(DEVICE)),,$(if $(filter 0,$(NCCL)),-nonccl))$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))$(if $(filter-out $(PRECISIONS),$(EVERY)),-$(subst $(space),-,$(PRECISIONS)))

# No -ffast-math: NaN, infinity and rounding stay exact. The two -fno flags allow vectorization without changing a value.
# GCC takes half of AVX-512's width on Intel's CPUs by itself: 1.5 to 1.8 times the time for GELU and the classifier.
# -Wno-restrict: GCC 12 warns of "text" + std::string (its bug 105651).
CODE_OF_ALL := -std=c++20 -O3 -march=$(CPU_ARCH) -mprefer-vector-width=512 -fopenmp -fno-math-errno -fno-trapping-math
CXXFLAGS += $(CODE_OF_ALL) -Wall -Wextra -Wconversion -Wno-restrict -I. -MMD -MP $(if $(WERROR),-Werror) $(if $(DEBUG),-g) \
            -fdebug-prefix-map=$(CURDIR)=. \
            $(if $(SANITIZE),-fsanitize=$(SANITIZE) $(CHEAPER) -fno-omit-frame-pointer -g1 $(QUICKLY))
LDFLAGS  += -fopenmp $(if $(SANITIZE),-fsanitize=$(SANITIZE))

# GCC's -O1 and -Og leave vzeroupper out, and without it SSE code, as in libm, takes several times as long after AVX.
QUICKLY := -O1 -fexpensive-optimizations
COLDLY  := $(if $(SANITIZE),$(QUICKLY),-Og -fexpensive-optimizations)
# A null pointer ends in AddressSanitizer anyway, nothing here has a vptr, and x86 loads from anywhere: a third of
# the time to compile.
CHEAPER := $(if $(findstring undefined,$(SANITIZE)),-fno-sanitize=null$(comma)vptr$(comma)object-size$(comma)alignment)
# What the machine has: each library is found by linking against it, once per build folder.
# Quickstart installs what is missing.
ifneq ($(filter-out quickstart check clean,$(or $(MAKECMDGOALS),all)),)
-include $(BUILD)/found.mk
endif
LDLIBS += -lz -lzstd -lxxhash $(if $(HAVE_DNNL),-ldnnl) $(CUDA_LIBS) $(MPI_LIBS) -lpthread -ldl

# A file that opens `namespace PRECISION` is compiled once per precision.
SOURCES  := $(filter-out llmc/main.cpp llmc/tokenize.cpp,$(wildcard llmc/*/*.cpp llmc/ops/cpu/*.cpp)) train_gpt.cu
KERNELS  := $(wildcard llmc/ops/cuda/*.cu)
ON_GPU   := $(KERNELS) $(wildcard test/cuda_*.cpp)        # not in FP64, of which a GPU build has the CPU's ops and their sums over ranks only
NUMERIC  := $(shell grep -l '^namespace PRECISION' $(SOURCES) $(KERNELS) /dev/null)
few       = $(filter llmc/ops/cpu/% llmc/comm/%,$1)     # what the CPU's ops and sums over ranks need of the other precisions
in_fp64   = $(filter-out $(ON_GPU),$(if $(filter cpu,$(DEVICE)),$1,$(call few,$1)))
numeric   = $(filter $(NUMERIC),$(if $(filter-out $(PRECISIONS),$1),$(call few,$2),$(if $(filter fp64,$1),$(call in_fp64,$2),$2)))
objects   = $(foreach s,$(filter-out $(NUMERIC),$(call united,$1)),$(BUILD)/common/$(basename $s).o) \
            $(foreach p,$(or $2,$(EVERY)),$(patsubst %,$(BUILD)/$p/%.o,$(basename $(call numeric,$p,$(call united,$1)))))

# Host code that calls operations, or runs once: a third less time to compile.
COLD  := $(filter-out llmc/comm/sums.cpp,$(wildcard llmc/base/*.cpp llmc/comm/*.cpp llmc/train/*.cpp)) llmc/tokenize.cpp llmc/main.cpp \
         train_gpt.cu $(addprefix llmc/io/,safetensors.cpp manifest.cpp tokenizer_json.cpp gguf.cpp disk.cpp)
# Files that are compiled by the same flags are compiled up to eight at a time, as $(BUILD)/unity/FOLDER/unity_N.cpp:
# what they include takes longer than they do.
UNITY ?= 1
ALONE := $(addprefix llmc/,base/cpu_guard.cpp base/version.cpp comm/mpi.cpp comm/nccl.cpp comm/nccl_verbs.cpp comm/sums.cpp ops/cpu/matmul.cpp ops/cpu/attention%)
define newline


endef
group  = $(eval UNITED += $1)$(eval OF_$1 := $2)$(foreach s,$2,$(eval GROUP_OF_$s := $1))
groups = $(if $2,$(call group,$1_$(words $3 1).cpp,$(wordlist 1,8,$2))$(call groups,$1,$(wordlist 9,99,$2),$3 1))
unite  = $(call groups,$1/unity_cold,$(filter $(COLD),$2))$(call groups,$1/unity,$(filter-out $(COLD),$2))
united = $(sort $(foreach s,$1,$(or $(GROUP_OF_$s),$s)))
ifneq ($(UNITY),0)
$(foreach f,base io comm,$(call unite,llmc/$f,$(filter-out $(NUMERIC) $(ALONE),$(filter llmc/$f/%,$(SOURCES)))))
$(call unite,llmc/ops/cpu,$(filter $(NUMERIC),$(filter-out $(ALONE),$(filter llmc/ops/cpu/%,$(SOURCES)))))
$(call unite,llmc/train,$(filter-out $(NUMERIC),$(filter llmc/model/% llmc/train/%,$(SOURCES))))
$(call unite,llmc/train/numeric,$(filter $(NUMERIC),$(filter llmc/model/% llmc/train/% train_gpt.cu,$(SOURCES))))
NUMERIC += $(filter llmc/ops/cpu/% llmc/train/numeric/%,$(UNITED))
COLD    += $(foreach g,$(UNITED),$(if $(findstring _cold_,$g),$g))
endif
includes = $(subst $(space),$(newline),$(OF_$1:%=\#include"%"))
# written where it is not what is there
$(foreach g,$(UNITED),$(if $(and $(findstring $(call includes,$g),$(file <$(BUILD)/unity/$g)),$(findstring $(file <$(BUILD)/unity/$g),$(call includes,$g))),,$(eval $(BUILD)/unity/$g: FORCE)))
$(UNITED:%=$(BUILD)/unity/%): $(BUILD)/unity/%:
	@mkdir -p $(@D) && printf '#include"%s"\n' $(OF_$*) > $@

TOKENIZE_SOURCES := $(wildcard llmc/base/*.cpp llmc/io/*.cpp)

all: train_gpt tokenize
	@cat $(BUILD)/found.txt

$(BUILD)/train_gpt: $(call objects,$(SOURCES) llmc/main.cpp) $(if $(filter cuda,$(BACKEND)),$(BUILD)/libcuda.a)
$(BUILD)/tokenize: $(call objects,$(TOKENIZE_SOURCES) llmc/tokenize.cpp)
$(BUILD)/train_gpt $(BUILD)/tokenize:
	$(LINK)
# the programs at the top are those of the flags that were given last
train_gpt tokenize: %: $(BUILD)/% FORCE
	@cmp -s $< $@ || cp -f $< $@

LINK    = @echo "link  $@" && mkdir -p $(@D) && $(CXX) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -o $@ $(LDLIBS)
of      = $(if $(OF_$*.cpp),$(addsuffix :,$(firstword $(dir $(OF_$*.cpp)))) $(notdir $(OF_$*.cpp)),$<)
COMPILE = @echo "c++   $(call of)$(if $1, ($1))" && mkdir -p $(@D) && $(PRECOMPILE) $(CCACHE) $(CXX) $(CXXFLAGS) $(if $1,-DPRECISION=$1) -DBACKEND=$(BACKEND) $(EXTRA) $(OF_TESTS) $(PRECOMPILED) -x c++ -c $< -o $@

# Headers are precompiled where they are first needed, for each set of flags that g++ insists on.
PCH         ?= $(if $(findstring clang,$(CXX)),0,1)
PCH_FLAGS    = $(filter-out -D% -I% -W% -M% -fdebug-prefix-map=% --coverage -fprofile-update=%,$(CXXFLAGS) $(EXTRA) $(OF_TESTS))
PCH_FOLDER   = $(BUILD)/pch/of$(subst $(space),,$(filter-out $(CODE_OF_ALL),$(PCH_FLAGS)))
# With them GCC 12 warns of std::string itself, as of any header that is not named as the system's.
PRECOMPILED  = $(if $(filter 0,$(PCH)),,-include $(PCH_FOLDER)/std.h -Wno-stringop-overflow -Wno-array-bounds)
PRECOMPILE   = $(if $(filter 0,$(PCH)),,dev/precompile.sh $(PCH_FOLDER) $(CXX) $(PCH_FLAGS) &&)
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
$(addprefix $(BUILD)/common/llmc/,ops/cuda/guard.o base/cpu_guard.o base/version.o) $(BUILD)/emulated/common/llmc/base/version.o \
    $(BUILD)/checks/common/llmc/ops/cuda/guard.o: PCH := 0

define precision_rules
$$(BUILD)/$1/%.o: %.cpp $$(BUILD)/found.mk
	$$(call COMPILE,$1)
$$(BUILD)/$1/%.o: %.cu $$(BUILD)/found.mk
	$$(call COMPILE,$1)
$$(BUILD)/$1/%.o: $$(BUILD)/unity/%.cpp $$(BUILD)/found.mk
	$$(call COMPILE,$1)
endef
$(foreach p,$(EVERY),$(eval $(call precision_rules,$p)))
$(BUILD)/fp64/%.o: BACKEND := cpu
$(BUILD)/common/%.o: %.cpp $(BUILD)/found.mk
	$(call COMPILE,)
$(BUILD)/common/%.o: $(BUILD)/unity/%.cpp $(BUILD)/found.mk
	$(call COMPILE,)

# ---------------------------------------------------------------------------------------------------------
# the GPU's kernels: by nvcc, or by g++ for the emulation

CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda) $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)))
NVCC      ?= $(CUDA_HOME)/bin/nvcc
ifeq ($(DEVICE),cuda)
# Compiled once, to the PTX of compute_80, and from that assembled for each GPU the toolkit knows. The PTX goes along
# for those that come later.
KNOWN     := $(shell $(NVCC) --list-gpu-code 2>/dev/null)
GPUS      := $(filter $(KNOWN),$(patsubst %,sm_%,$(ARCH:%a=%)))
DROPPED   := $(filter-out $(KNOWN),$(patsubst %,sm_%,$(ARCH:%a=%)))
EMULATOR  :=
NVCCFLAGS += -std=c++20 -O3 --expt-relaxed-constexpr -I. -MMD -MP -Xcompiler -Wall,-Wextra,-fopenmp \
             -gencode arch=compute_80,code=[compute_80$(subst $(space),,$(GPUS:%=$(comma)%))] $(if $(WERROR),-Werror all-warnings)
COMPILE_KERNEL = @echo "nvcc  $<$(if $1, ($1))" && mkdir -p $(@D) && $(CCACHE) $(NVCC) $(NVCCFLAGS) $(if $1,-DPRECISION=$1) -DBACKEND=cuda -c $< -o $@
$(foreach p,common fp32 bf16,$(patsubst test/%.cpp,$(BUILD)/$p/test/%.o,$(wildcard test/cuda_*.cpp))) \
    $(patsubst dev/%.cpp,$(BUILD)/common/dev/%.o,$(wildcard dev/cuda_*.cpp)): EXTRA = -I$(CUDA_HOME)/include
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcublas -lcublasLt -lcudart $(NCCL_LIBS) -Wl,-rpath,$(CUDA_HOME)/lib64
else
EMULATOR  := $(wildcard test/emulator/*.cpp)
EMULATE   := -DCUDA_EMU -Itest/emulator/include -fno-strict-aliasing -Wno-unknown-pragmas -Wno-attributes -Wno-conversion -g1 -O2
WATCHED   := $(if $(SANITIZE),,-fsanitize=thread,alignment)
COMPILE_KERNEL = $(call COMPILE,$1)
$(foreach p,common fp32 bf16,$(KERNELS:%.cu=$(BUILD)/$p/%.o) $(EMULATOR:%.cpp=$(BUILD)/$p/%.o)) \
    $(patsubst test/%.cpp,$(BUILD)/common/test/%.o,$(wildcard test/emulat*.cpp)) \
    $(patsubst dev/%.cpp,$(BUILD)/common/dev/%.o,$(wildcard dev/cuda_*.cpp)) \
    $(foreach p,common fp32 bf16,$(patsubst test/%.cpp,$(BUILD)/$p/test/%.o,$(wildcard test/cuda_*.cpp))): EXTRA = $(EMULATE)
$(foreach p,common fp32 bf16,$(KERNELS:%.cu=$(BUILD)/$p/%.o)): EXTRA = $(EMULATE)
$(BUILD)/common/test/ptx_goldens.o: EXTRA = $(EMULATE)
$(BUILD)/common/test/emulator/planted.o: EXTRA = $(EMULATE) $(WATCHED)
endif

# what a program of this build holds, for llmc/ops/cuda/guard.cu
HELD := $(subst $(space),$(comma)$(space),$(or $(strip $(GPUS)),$(patsubst %,sm_%,80 86 89 90 100 120))), PTX of compute_80
$(BUILD)/common/llmc/ops/cuda/guard.o $(BUILD)/checks/common/llmc/ops/cuda/guard.o: EXTRA += -DCUDA_ARCHS='"$(HELD)"'
$(BUILD)/common/llmc/ops/cuda/guard.o: NVCCFLAGS += -DCUDA_ARCHS='"$(HELD)"'

define kernel_rules
$$(BUILD)/$1/llmc/ops/cuda/%.o: llmc/ops/cuda/%.cu $$(BUILD)/found.mk
	$$(call COMPILE_KERNEL,$(filter-out common,$1))
endef
$(foreach p,common fp32 bf16,$(eval $(call kernel_rules,$p)))
$(BUILD)/common/test/emulator/%.o: test/emulator/%.cu $(BUILD)/found.mk
	$(call COMPILE,)
$(BUILD)/common/test/ptx_goldens.o: test/ptx_goldens.cu $(BUILD)/found.mk
	$(call COMPILE_KERNEL,)
$(BUILD)/libcuda.a: $(call objects,$(KERNELS) $(EMULATOR),$(if $(SANITIZE),$(TEST_PRECISIONS)))
	@rm -f $@ && ar rcs $@ $^

# The kernels once more, for tests in $(BUILD)/checks/test: every access is looked at (bounds, races, what was
# never written), and lines that run are counted.
CHECKS := $(BUILD)/checks
$(CHECKS)/%.o: EXTRA = $(EMULATE) $(WATCHED) --coverage -fprofile-update=single
define checks_rules
$$(CHECKS)/$1/%.o: %.cu $$(BUILD)/found.mk
	$$(call COMPILE,$(filter-out common,$1))
endef
$(foreach p,common fp32 bf16,$(eval $(call checks_rules,$p)))
$(CHECKS)/libcuda.a: $(patsubst $(BUILD)/%,$(CHECKS)/%,$(call objects,$(KERNELS))) $(call objects,$(EMULATOR))
	@rm -f $@ && ar rcs $@ $^

# A CPU build tests the trainer over the emulated kernels too: all but what is numeric is its own.
EMULATED  := $(BUILD)/emulated
ON_KERNELS = $(filter-out llmc/ops/cpu/%,$(filter $(NUMERIC),$(SOURCES)))
$(EMULATED)/%.o: BACKEND := cuda
$(EMULATED)/%.o: CXXFLAGS += $(COLDLY)
define emulated_rules
$$(EMULATED)/$1/%.o: %.cpp $$(BUILD)/found.mk
	$$(call COMPILE,$(filter-out common,$1))
$$(EMULATED)/$1/%.o: %.cu $$(BUILD)/found.mk
	$$(call COMPILE,$(filter-out common,$1))
$$(EMULATED)/$1/%.o: $$(BUILD)/unity/%.cpp $$(BUILD)/found.mk
	$$(call COMPILE,$(filter-out common,$1))
endef
$(foreach p,common fp32 bf16,$(eval $(call emulated_rules,$p)))
NCCL_PARTS = llmc/comm/nccl llmc/comm/nccl_verbs
OF_KERNELS = $(foreach p,fp32 bf16,$(patsubst %,$(EMULATED)/$p/%.o,$(basename $(call united,$(ON_KERNELS))))) $(NCCL_PARTS:%=$(EMULATED)/common/%.o)
$(EMULATED)/train_gpt: $(EMULATED)/common/llmc/main.o
$(EMULATED)/cuda_kernels: $(EMULATED)/common/dev/cuda_kernels.o
$(EMULATED)/common/dev/cuda_kernels.o: EXTRA = $(EMULATE)
$(EMULATED)/train_gpt $(EMULATED)/cuda_kernels: $(OF_KERNELS) $(EMULATED)/common/llmc/base/version.o $(BUILD)/fp64/llmc/comm/sums.o \
    $(filter-out %/base/version.o %/comm/nccl.o %/comm/nccl_verbs.o,$(call objects,$(filter-out $(ON_KERNELS),$(SOURCES)))) $(BUILD)/libcuda.a
	$(LINK)

# ---------------------------------------------------------------------------------------------------------
# what was found

found = printf '%s\n' '\#include <$2>' 'int main() {}' | $(CXX) -std=c++20 -x c++ - -o /dev/null $3 >/dev/null 2>&1
# of headers alone, without reading them
header = printf '%s\n' '\#if !__has_include(<$1>)' '\#error' '\#endif' | $(CXX) -E -x c++ - -o /dev/null >/dev/null 2>&1

CUDA_FOUND = echo "CUDA      left out: $(if $(filter cpu,$(DEVICE)),DEVICE=cpu,emulated on the CPU$(comma) for tests)" >> $(BUILD)/found.txt
ifeq ($(DEVICE),cuda)
CUDA_FOUND = if [ ! -x "$(NVCC)" ]; then echo "error: DEVICE=cuda needs the CUDA toolkit, 12.4 or newer: no nvcc in $(CUDA_HOME)/bin (CUDA_HOME=...)" >&2; exit 1; fi; \
    $(call found,cublas,cublas_v2.h,-I$(CUDA_HOME)/include -L$(CUDA_HOME)/lib64 -lcublas -lcublasLt -lcudart) || { echo "error: cuBLAS is missing from $(CUDA_HOME)" >&2; exit 1; }; \
    echo "CUDA      $$($(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'): $(GPUS), PTX for newer ones" >> $(BUILD)/found.txt; \
    $(if $(DROPPED),echo "CUDA      left out: $(DROPPED)$(comma) which this toolkit does not know" >> $(BUILD)/found.txt)
endif

NCCL_NAMES := $(BUILD)/common/llmc/comm/nccl.o $(BUILD)/common/llmc/comm/nccl_verbs.o
NCCL_FOUND  = echo "NCCL      left out: $(if $(filter cpu,$(DEVICE)),DEVICE=cpu,$(if $(filter 0,$(NCCL)),by NCCL=0,emulated between threads))" >> $(BUILD)/found.txt
ifeq ($(DEVICE),cuda)
$(NCCL_NAMES): EXTRA = $(NCCL_FLAGS)
define NCCL_PROBE
#include <nccl.h>\nstatic_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1));\nint main() { return ncclCommSplit(0, 0, 0, 0, 0); }\n
endef
NCCL_FOUND = flags="$(NCCL_HOME:%=-I%/include) -I$(CUDA_HOME)/include"; \
    libs="$(NCCL_HOME:%=-L%/lib -Wl,-rpath,%/lib) -L$(CUDA_HOME)/lib64 -lnccl"; \
    if [ "$(NCCL)" = 0 ]; then echo "NCCL      left out by NCCL=0: one GPU; ranks that are threads can share it" >> $(BUILD)/found.txt; \
    elif printf '$(NCCL_PROBE)' | $(CXX) -std=c++20 $$flags -x c++ - -o /dev/null $$libs -lcudart >/dev/null 2>&1; then \
        echo "NCCL_FLAGS := -DHAVE_NCCL $$flags" >> $@.new; echo "NCCL_LIBS := $$libs" >> $@.new; \
        echo "NCCL      found: ranks have a GPU each, as processes or threads" >> $(BUILD)/found.txt; \
    else echo "NCCL      not found, 2.18 or newer: one GPU (apt-get install libnccl-dev, or NCCL_HOME=...)" >> $(BUILD)/found.txt; fi
else
# emulated
$(NCCL_NAMES): EXTRA = $(if $(filter emulated,$(DEVICE)),$(EMULATE) $(if $(filter 0,$(NCCL)),,-DHAVE_NCCL))
$(NCCL_PARTS:%=$(EMULATED)/common/%.o): EXTRA = $(EMULATE) -DHAVE_NCCL
endif

# again while something is missing
$(BUILD)/found.mk: Makefile $(if $(shell grep -s 'not found' $(BUILD)/found.txt),FORCE)
	@mkdir -p $(@D) && rm -f $@.new $(BUILD)/found.txt
	@missing=""; \
	$(call found,zlib,zlib.h,-lz) || missing="$$missing zlib1g-dev"; \
	$(call found,zstd,zstd.h,-lzstd) || missing="$$missing libzstd-dev"; \
	$(call found,xxhash,xxhash.h,-lxxhash) || missing="$$missing libxxhash-dev"; \
	$(call header,nlohmann/json.hpp) || missing="$$missing nlohmann-json3-dev"; \
	$(call header,cxxopts.hpp) || missing="$$missing libcxxopts-dev"; \
	if [ -n "$$missing" ]; then echo "error: missing libraries. Install them with:  apt-get install$$missing" >&2; exit 1; fi
	@if [ "$(DNNL)" != 0 ] && $(call found,dnnl,oneapi/dnnl/dnnl.h,-ldnnl); then \
	    echo "HAVE_DNNL := 1" >> $@.new; echo "oneDNN    found: matmuls of fp32 and bf16" >> $(BUILD)/found.txt; \
	elif [ "$(DNNL)" = 0 ]; then echo "oneDNN    left out by DNNL=0: matmuls by plain loops" >> $(BUILD)/found.txt; \
	else echo "oneDNN    not found: matmuls by plain loops, slower (apt-get install libdnnl-dev)" >> $(BUILD)/found.txt; fi
	@$(CUDA_FOUND)
	@flags="-DOMPI_SKIP_MPICXX $$(mpicxx -showme:compile 2>/dev/null)"; libs="$$(mpicxx -showme:link 2>/dev/null | sed 's/-lmpi_cxx//')"; \
	if [ "$(MPI)" = 0 ]; then echo "MPI       left out by MPI=0: ranks are threads of one process" >> $(BUILD)/found.txt; \
	elif [ -n "$$libs" ] && $(call found,mpi,mpi.h,$$flags $$libs); then \
	    echo "MPI_FLAGS := -DHAVE_MPI $$flags" >> $@.new; echo "MPI_LIBS := $$libs" >> $@.new; \
	    echo "MPI       found: ranks are processes of mpirun, or threads" >> $(BUILD)/found.txt; \
	else echo "MPI       not found: ranks are threads of one process (apt-get install libopenmpi-dev)" >> $(BUILD)/found.txt; fi
	@$(NCCL_FOUND)
	@echo "CPU_FEATURES := $$(echo | $(CXX) -march=$(CPU_ARCH) -dM -E - | sed -n 's/^#define __\(SSE4_2\|POPCNT\|MOVBE\|LZCNT\|BMI2*\|GFNI\|F16C\|FMA\|AVX[A-Z0-9]*\)__ 1$$/\1/p' | sort | tr '\n' ' ')" >> $@.new
	@if [ $@ -nt Makefile ] && cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# compiled for any x86-64: it has to run in order to say that the rest cannot
$(BUILD)/common/llmc/base/cpu_guard.o: CXXFLAGS := $(subst -march=$(CPU_ARCH),,$(CXXFLAGS))
$(BUILD)/common/llmc/base/cpu_guard.o: EXTRA = -DCPU_FEATURES='"$(CPU_FEATURES)"' -DCPU_ARCH='"$(CPU_ARCH)"'
$(BUILD)/common/llmc/main.o: EXTRA = $(if $(filter cpu,$(DEVICE)),-DHAVE_FP64)
$(BUILD)/common/llmc/ops/cpu/dnnl.o: EXTRA = $(if $(HAVE_DNNL),-DHAVE_DNNL)
$(BUILD)/common/llmc/comm/mpi.o: EXTRA = $(MPI_FLAGS)

$(foreach p,common $(EVERY),$(patsubst %,$(BUILD)/$p/%.o,$(basename $(COLD)))): CXXFLAGS += $(COLDLY)

# the commit, in one small file that is compiled again when it changes
COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
$(BUILD)/commit: FORCE
	@mkdir -p $(@D) && echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' > $@
$(BUILD)/common/llmc/base/version.o: $(BUILD)/commit
$(EMULATED)/common/llmc/base/version.o: $(BUILD)/commit
$(EMULATED)/common/llmc/base/version.o: EXTRA = -DCOMMIT='"$(COMMIT)"' -DDEVICE='"emulated"' $(if $(HAVE_DNNL),-DHAVE_DNNL)
$(BUILD)/common/llmc/base/version.o: EXTRA = -DCOMMIT='"$(COMMIT)"' -DDEVICE='"$(DEVICE)"' $(if $(HAVE_DNNL),-DHAVE_DNNL)
FORCE:

# ---------------------------------------------------------------------------------------------------------
# tests: every test/NAME.cpp is a binary of its own, over the whole program but its mains

# under sanitizers without the trainer over the emulated kernels, the host's code once more, and without tests of scripts
OF_SCRIPTS   := $(addprefix test/,data_scripts.cpp emulator_cute.cpp gpu_check.cpp libraries.cpp quickstart.cpp scripts.cpp)
TEST_SOURCES := $(filter-out test/test.cpp $(if $(SANITIZE),test/emulated_% $(OF_SCRIPTS)) $(if $(filter cuda,$(DEVICE)),test/emulat%) $(if $(filter emulated,$(DEVICE)),test/emulated_trainer.cpp test/emulated_nccl_runs.cpp),$(wildcard test/*.cpp))
NUMERIC      += $(shell grep -l '^namespace PRECISION' $(TEST_SOURCES) $(wildcard dev/*.cpp) /dev/null)
TEST_PRECISIONS ?= $(PRECISIONS)        # of tests that have one; the program has all
# ... and those of the operations and of the model, which take seconds, in all
OF_OPERATIONS := adamw attention classifier decoder encoder layernorm matmul memory test_gpt train
precisions_of  = $(if $(filter $(OF_OPERATIONS),$1),$(PRECISIONS),$(TEST_PRECISIONS))
TESTS        := $(patsubst test/%.cpp,$(BUILD)/test/%,$(TEST_SOURCES))
LIBRARY      := $(BUILD)/libtrain_gpt.a
BENCHES      := $(patsubst dev/%.cpp,$(BUILD)/dev/%,$(filter-out $(if $(filter cpu,$(DEVICE)),dev/cuda_kernels.cpp),$(wildcard dev/*.cpp)))

$(LIBRARY): $(call objects,$(filter-out train_gpt.cu,$(SOURCES)))
	@rm -f $@ && ar rcs $@ $^
.SECONDEXPANSION:
ON_CUDA := $(if $(filter cpu,$(DEVICE)),cuda_% emulat%,%)           # tests that link the kernels
# TESTS_OF=FOLDER: objects of tests come from the build there, so that a sanitizer looks at what they test alone. Those
# of the emulation share its headers, which know of sanitizers.
test_objects = $(if $(and $(TESTS_OF),$(filter-out $(ON_CUDA),$1)),$(patsubst $(BUILD)/%,$(TESTS_OF)/%,$2),$2)
$(TESTS): $(BUILD)/test/%: $$(call test_objects,$$*,$$(call objects,test/$$*.cpp test/test.cpp,$$(call precisions_of,$$*))) $$(if $$(filter $$(ON_CUDA),$$*),$$(BUILD)/libcuda.a) $(LIBRARY)
	$(LINK)
$(TESTS:$(BUILD)/%=$(CHECKS)/%): $(CHECKS)/test/%: $$(call objects,test/$$*.cpp test/test.cpp) $(CHECKS)/libcuda.a $(LIBRARY)
	$(LINK) --coverage
$(BUILD)/test/emulator_checks: $(BUILD)/common/test/emulator/planted.o
$(BUILD)/test/emulated_trainer $(BUILD)/test/emulated_nccl_runs: | $(BUILD)/train_gpt $(EMULATED)/train_gpt
$(BUILD)/test/emulated_trainer: | $(EMULATED)/cuda_kernels
$(BUILD)/test/emulated_nccl $(BUILD)/test/emulated_nccl_faults: $(if $(filter cpu,$(DEVICE)),$(OF_KERNELS))
$(BENCHES): $(BUILD)/dev/%: $$(call objects,dev/$$*.cpp) $$(if $$(filter $$(ON_CUDA),$$*),$$(BUILD)/libcuda.a) $(LIBRARY)
	$(LINK)
$(BUILD)/dev/cuda_kernels: $(call objects,train_gpt.cu)
GRADED := $(patsubst %.cu,$(BUILD)/common/%.o,$(wildcard dev/cuda/*.cu))
$(GRADED): $(BUILD)/common/%.o: %.cu $(BUILD)/found.mk
	$(call COMPILE_KERNEL,)
$(GRADED): EXTRA = $(EMULATE) $(WATCHED)                            # their plain accesses are counted too
$(BUILD)/dev/cuda_graded $(BUILD)/test/cuda_graded_kernels $(CHECKS)/test/cuda_graded_kernels: $(GRADED)
$(BUILD)/test/cuda_graded_kernels $(CHECKS)/test/cuda_graded_kernels: | $(BUILD)/dev/cuda_graded
$(BUILD)/dev/cuda_goldens $(BUILD)/test/emulator_goldens: $(BUILD)/common/test/ptx_goldens.o
$(BUILD)/test/cuda_guard $(CHECKS)/test/cuda_guard: | $(BUILD)/dev/cuda_bench
$(BUILD)/test/gpu_check: | $(BUILD)/dev/cuda_bench $(BUILD)/dev/cuda_goldens
# what scripts/gpu_check.sh runs, in one folder
BIN      ?= build/gpu_check_bin
ON_A_GPU := $(filter $(BUILD)/test/cuda_%,$(TESTS)) $(BUILD)/test/test_gpt \
            $(BUILD)/dev/cuda_bench $(BUILD)/dev/cuda_goldens $(BUILD)/dev/cuda_graded $(BUILD)/dev/cuda_kernels
gpu-check: $(BUILD)/train_gpt $(BUILD)/tokenize $(ON_A_GPU)
	@mkdir -p $(BIN) && cp -f $^ $(BIN)/
test/test_gpt: $(BUILD)/test/test_gpt FORCE
	@cmp -s $< $@ || cp -f $< $@

# Tests: half the time to compile, and what they test is compiled in full.
$(BUILD)/common/test/%.o: OF_TESTS = $(COLDLY) -Wno-conversion
$(BUILD)/common/test/math.o $(foreach p,$(PRECISIONS),$(BUILD)/$p/test/%.o): OF_TESTS = $(QUICKLY) -Wno-conversion
$(BUILD)/common/test/emulator/%.o: OF_TESTS = -Wno-conversion

tests: train_gpt tokenize dev/ckpt $(TESTS)
test: tests
	@BUILD=$(BUILD) PYTHON=$(PYTHON) test/run_all.sh $(TESTS)
test-full:
	@PYTHON=$(PYTHON) test/run_full.sh
coverage:
	@test/coverage.sh
check:
	@PYTHON=$(PYTHON) dev/check.sh
ptxas:
	@$(PYTHON) dev/ptxas.py --nvcc=$(NVCC) $(addprefix --arch=,$(or $(PTXAS_ARCHS),$(if $(filter cuda,$(DEVICE)),$(subst $(space),$(comma),$(strip $(ARCH))))))
bench: train_gpt tokenize $(BENCHES)
	@BUILD=$(BUILD) PYTHON=$(PYTHON) dev/bench.sh
bench-ranks: train_gpt
	@PYTHON=$(PYTHON) dev/bench_ranks.sh
bench-checkpoint: $(BUILD)/dev/bench_checkpoint
	@BUILD=$(BUILD) dev/bench_checkpoint.sh
dev-cuda: $(BUILD)/dev/cuda_graded
	@$<
dev/ckpt: $(BUILD)/dev/ckpt FORCE
	@cmp -s $< $@ || cp -f $< $@
quickstart:
	@PYTHON=$(PYTHON) scripts/quickstart.sh
clean:
	rm -rf build train_gpt tokenize test/test_gpt dev/ckpt

.PHONY: all tests test test-full coverage check ptxas bench bench-ranks bench-checkpoint dev-cuda gpu-check quickstart clean FORCE
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
