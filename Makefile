# make                 ./train_gpt and ./tokenize for what this machine has
# make quickstart      text in, trained GPT out: one command
# make test            all tests, and packages that they lack (INSTALL=0: none); test-full adds sanitizers,
#                      fuzzers and the long lattices
# make check           floors, lengths, formatting, lint
# make ptxas           registers, spills and shared memory of every kernel
# make bench           speeds, as tables and as JSON under dev/results/; bench-ranks: of several ranks;
#                      bench-checkpoint: of saving and loading
# make dev-cuda        graded versions of two kernels, from naive to fast (dev/cuda/README.md)
# make coverage        lines of the CUDA backend that its emulated tests run
# make faults          plants faults, one for each rule, and asks the tests (dev/faults.json)
# make gpu-check       what scripts/gpu_check.sh runs on a GPU
# make planner-check   --plan against published step times
# make planner-here    --plan against runs on this machine
# make dev/ckpt        the tool that looks at checkpoints
#
# DEVICE=cpu | cuda (where there are a GPU and nvcc) | emulated (the GPU's kernels, run by a CPU: for tests)
# ARCH=native  CPU to build for (any -march); with DEVICE=cuda the GPUs, as in ARCH="80 90a"
# DNNL=0       matmul by plain loops          WERROR=1     warnings are errors (CI)
# SANITIZE=address,undefined | thread         MPI=0 NCCL=0 leave out (nothing uses them on one rank)
# UNITY=0      each file by itself            PRECISIONS="fp32 bf16 fp64"      of tests that link fewer
# CXXFLAGS NVCCFLAGS LDFLAGS LDLIBS           after those of this build
# CUDA_HOME, NCCL_HOME: where they are, if not where they are looked for
#
# The rest is in dev/make/: unity.mk (files compiled together), cuda.mk (kernels, by nvcc or emulated), tests.mk.

.DEFAULT_GOAL := all

# a GPU that answers, and a compiler for it
A_GPU  := $(wildcard /dev/nvidia[0-9]* /dev/dxg)
A_NVCC := $(wildcard $(or $(CUDA_HOME),/usr/local/cuda)/bin/nvcc)$(shell command -v nvcc 2>/dev/null)
DEVICE ?= $(if $(and $(A_GPU),$(A_NVCC)),cuda,cpu)
ifeq ($(filter cpu cuda emulated,$(DEVICE)),)
$(error DEVICE=$(DEVICE): cpu, cuda or emulated)
endif
ifeq ($(filter x86_64 amd64,$(shell uname -m)),)
$(error $(shell uname -m): the host code is written for x86-64)
endif
BACKEND    := $(if $(filter cpu,$(DEVICE)),cpu,cuda)
ARCH       ?= $(if $(filter cuda,$(DEVICE)),80 86 89 90 100 120,native)
CPU_ARCH   := $(if $(filter cuda,$(DEVICE)),native,$(ARCH))
PYTHON     ?= /usr/bin/python3
PRECISIONS := fp32 bf16 fp64
EVERY      := fp32 bf16 fp64

comma  := ,
empty  :=
space  := $(empty) $(empty)
CCACHE := $(shell command -v ccache 2>/dev/null)
# a folder for each set of options
LEFT_OUT := $(if $(filter 0,$(DNNL)),-nodnnl)$(if $(filter 0,$(MPI)),-nompi)$(if \
            $(and $(filter-out cpu,$(DEVICE)),$(filter 0,$(NCCL))),-nonccl)
SANITIZED := $(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
FEWER    := $(if $(filter-out $(PRECISIONS),$(EVERY)),-$(subst $(space),-,$(PRECISIONS)))
BUILD    := build/$(DEVICE)-$(subst $(space),-,$(ARCH))$(LEFT_OUT)$(SANITIZED)$(FEWER)

# No -ffast-math: NaN, infinity and rounding stay exact. The two -fno flags allow vectorization without changing a
# value. GCC takes half of AVX-512's width on Intel's CPUs by itself: 1.5 to 1.8 times the time for GELU and the
# classifier. -Wno-restrict: GCC 12 warns of "text" + std::string (its bug 105651).
# GCC collects garbage beyond 128 MB: not before 1 GB takes a tenth less time and 100 MB more.
CODE_OF_ALL := -std=c++20 -O3 -march=$(CPU_ARCH) -mprefer-vector-width=512 -fopenmp -fno-math-errno -fno-trapping-math \
               --param ggc-min-heapsize=1000000
HOST_FLAGS  := $(CODE_OF_ALL) -Wall -Wextra -Wconversion -Wno-restrict $(if $(WERROR),-Werror) $(if $(DEBUG),-g) \
               -I. -MMD -MP -fdebug-prefix-map=$(CURDIR)=.
# GCC's -O1 and -Og leave vzeroupper out, and without it SSE code, as in libm, takes several times as long after
# AVX.
QUICKLY := -O1 -fexpensive-optimizations
COLDLY  := $(if $(SANITIZE),$(QUICKLY),-Og -fexpensive-optimizations)
# A null pointer ends in AddressSanitizer anyway, nothing here has a vptr, and x86 loads from anywhere: a third of
# the time to compile.
CHEAPER := $(if $(findstring undefined,$(SANITIZE)),\
           -fno-sanitize=null$(comma)vptr$(comma)object-size$(comma)alignment)
ifdef SANITIZE
HOST_FLAGS += -fsanitize=$(SANITIZE) $(CHEAPER) -fno-omit-frame-pointer -g1 $(QUICKLY)
endif
LINK_FLAGS := -fopenmp $(if $(SANITIZE),-fsanitize=$(SANITIZE))
LIBRARIES   = -lfmt -lz -lzstd -lxxhash $(if $(HAVE_DNNL),-ldnnl) $(CUDA_LIBS) $(MPI_LIBS) -lpthread -ldl $(LDLIBS)

# What the machine has. Quickstart and test install what is missing first.
ifneq ($(filter-out quickstart test check clean,$(or $(MAKECMDGOALS),all)),)
-include $(BUILD)/found.mk
endif

# A file that opens `namespace PRECISION` is compiled once per precision.
rooms     = $(wildcard $1/$2 $1/*/$2 $1/*/*/$2)           # files of a folder, two levels down
SOURCES  := $(call rooms,llmc/*,*.cpp) train_gpt.cu
KERNELS  := $(call rooms,llmc/ops/cuda,*.cu)
NUMERIC  := $(shell grep -l '^namespace PRECISION' $(SOURCES) $(KERNELS) /dev/null)
# GPUs have no FP64: a build for them has the CPU's ops and their sums over ranks of it
ON_GPU   := $(KERNELS) $(call rooms,test/ops/cuda,*.cpp) $(wildcard test/emulated/*.cpp)
# what the CPU's ops and sums over ranks need of a precision that is not asked for
few       = $(filter llmc/ops/cpu/% llmc/comm/%,$1)
in_fp64   = $(filter-out $(ON_GPU),$(if $(filter cpu,$(DEVICE)),$1,$(call few,$1)))
of_asked  = $(if $(filter fp64,$1),$(call in_fp64,$2),$2)
# numeric PRECISION FILES: those that are compiled in it
numeric   = $(filter $(NUMERIC),$(if $(filter $(PRECISIONS),$1),$(call of_asked,$1,$2),$(call few,$2)))
# objects FILES [PRECISIONS]
objects   = $(patsubst %,$(BUILD)/common/%.o,$(basename $(filter-out $(NUMERIC),$(call united,$1)))) $(foreach \
            p,$(or $2,$(EVERY)),$(patsubst %,$(BUILD)/$p/%.o,$(basename $(call numeric,$p,$(call united,$1)))))

# Host code that calls operations, or runs once: a third less time to compile. Texts, shards, weights and rows of
# metrics pass through HOT.
HOT   := llmc/comm/reductions.cpp llmc/train/data/packing.cpp llmc/train/save/state_source.cpp \
         $(wildcard llmc/io/unicode/*.cpp) \
         $(patsubst %,llmc/io/corpus/%.cpp,bpe_train documents json_line word_count) \
         $(patsubst %,llmc/io/files/%.cpp,byte_stream document_index shard shard_writer) \
         $(patsubst %,llmc/io/text/%.cpp,added_tokens bpe text_encoder) llmc/train/watch/history.cpp
COLD  := $(filter-out $(HOT),$(filter llmc/base/% llmc/comm/% llmc/train/% llmc/io/%,$(SOURCES))) \
         llmc/tokenize.cpp llmc/main.cpp train_gpt.cu
include dev/make/unity.mk

all: train_gpt tokenize
	@cat $(BUILD)/found.txt

$(BUILD)/train_gpt: $(call objects,$(SOURCES) llmc/main.cpp) $(if $(filter cuda,$(BACKEND)),$(BUILD)/libcuda.a)
$(BUILD)/tokenize: $(call objects,$(filter llmc/base/% llmc/io/%,$(SOURCES)) llmc/tokenize.cpp)
$(BUILD)/train_gpt $(BUILD)/tokenize:
	$(LINK)
# the programs at the top are those of the flags that were given last
train_gpt tokenize: %: $(BUILD)/% FORCE
	@cmp -s $< $@ || cp -f $< $@

# ---------------------------------------------------------------------------------------------------------
# how a file is compiled

LINK    = @echo "link  $@" && mkdir -p $(@D) && $(CXX) $(LINK_FLAGS) $(LDFLAGS) $(filter %.o,$^) \
          -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -o $@ $(LIBRARIES)
# COMPILE [PRECISION]
FLAGS   = $(HOST_FLAGS) $(EXTRA) $(OF_TESTS) $(CXXFLAGS)
COMPILE = @echo "c++   $(call of)$(if $1, ($1))" && mkdir -p $(@D) && $(CCACHE) $(CXX) $(FLAGS) \
          $(if $1,-DPRECISION=$1) -DBACKEND=$(BACKEND) -x c++ -c $< -o $@

# compile_rules FOLDER PRECISION: of *.cpp, of *.cu as C++, and of files compiled together
define compile_rules
$1/%.o: %.cpp $$(BUILD)/found.mk
	$$(call COMPILE,$2)
$1/%.o: %.cu $$(BUILD)/found.mk
	$$(call COMPILE,$2)
$1/%.o: $$(BUILD)/unity/%.cpp $$(BUILD)/found.mk
	$$(call COMPILE,$2)
endef
# compile_each FOLDER: in FOLDER/common, and in a folder of each precision
compile_each = $(eval $(call compile_rules,$1/common,))$(foreach p,$(EVERY),$(eval $(call compile_rules,$1/$p,$p)))
$(call compile_each,$(BUILD))
$(BUILD)/fp64/%.o: BACKEND := cpu
$(foreach p,common $(EVERY),$(patsubst %,$(BUILD)/$p/%.o,$(basename $(COLD)))): HOST_FLAGS += $(COLDLY)

# compiled for any x86-64: it has to run in order to say that the rest cannot
$(BUILD)/common/llmc/base/host/cpu_guard.o: HOST_FLAGS := $(subst -march=$(CPU_ARCH),,$(HOST_FLAGS))
$(BUILD)/common/llmc/base/host/cpu_guard.o: EXTRA = -DCPU_FEATURES='"$(CPU_FEATURES)"' -DCPU_ARCH='"$(CPU_ARCH)"'
$(BUILD)/common/llmc/main.o: EXTRA = $(if $(filter cpu,$(DEVICE)),-DHAVE_FP64)
$(BUILD)/common/llmc/ops/cpu/products/dnnl.o: EXTRA = $(if $(HAVE_DNNL),-DHAVE_DNNL)
$(BUILD)/common/llmc/comm/transport/mpi.o: EXTRA = $(MPI_FLAGS)

# the pages that the program carries, joined from their parts
PAGES    := $(BUILD)/watch.html $(BUILD)/explore.html
PARTS    := $(wildcard llmc/train/*/page/*) scripts/references.json llmc/train/report/figures.json
$(PAGES): $(BUILD)/%.html: llmc/train/%/page.html $(PARTS) dev/make/join.awk
	@echo "join  $@" && mkdir -p $(@D) && awk -f dev/make/join.awk $< > $@.$$$$ && mv $@.$$$$ $@
$(BUILD)/common/llmc/train/report/embedded.o: $(PAGES) llmc/train/report/figures.json
$(BUILD)/common/llmc/train/report/embedded.o: EXTRA = -DWATCH_PAGE='"$(BUILD)/watch.html"' \
    -DEXPLORE_PAGE='"$(BUILD)/explore.html"'

# the commit, in one small file that is compiled again when it changes
COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
$(BUILD)/commit: FORCE
	@mkdir -p $(@D) && echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' > $@
$(BUILD)/common/llmc/base/host/version.o: $(BUILD)/commit
of_version = -DCOMMIT='"$(COMMIT)"' -DDEVICE='"$1"' $(if $(HAVE_DNNL),-DHAVE_DNNL)
$(BUILD)/common/llmc/base/host/version.o: EXTRA = $(call of_version,$(DEVICE))

include dev/make/cuda.mk

# Looked for again where something was missing, or what was found is gone. All is compiled anew if this changes.
FIND  := CXX="$(CXX)" DEVICE=$(DEVICE) CPU_ARCH=$(CPU_ARCH) DNNL=$(DNNL) MPI=$(MPI) NCCL=$(NCCL) \
         CUDA_HOME="$(CUDA_HOME)" NCCL_HOME="$(NCCL_HOME)" NVCC="$(NVCC)" GPUS="$(GPUS)" DROPPED="$(DROPPED)" \
         dev/find_libraries.sh
RULES := Makefile $(wildcard dev/make/*.mk) dev/find_libraries.sh
AGAIN := $(shell grep -s 'not found' $(BUILD)/found.txt)$(filter-out $(wildcard $(FOUND_HEADERS)),$(FOUND_HEADERS))
$(BUILD)/found.mk: $(RULES) $(if $(AGAIN),FORCE)
	@$(FIND) $(@D)
	@if [ -z "$(filter-out FORCE,$?)" ] && cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
FORCE:

include dev/make/tests.mk

tests: train_gpt tokenize dev/ckpt $(TESTS)
run-tests: tests
	@BUILD=$(BUILD) PYTHON=$(PYTHON) test/run_all.sh $(TESTS)
# a make of its own, as what is installed decides what is built
test:
	@PYTHON=$(PYTHON) INSTALL=$(INSTALL) test/install.sh
	@+$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc)) run-tests
test-full:
	@PYTHON=$(PYTHON) test/run_full.sh
coverage:
	@test/coverage.sh
faults:
	@$(PYTHON) dev/faults.py
check:
	@PYTHON=$(PYTHON) dev/check.sh
ptxas:
	@$(PYTHON) dev/ptxas.py --nvcc=$(NVCC) $(if $(GPUS),--arch=$(subst $(space),$(comma),$(GPUS:sm_%=%)))
benches: $(BENCHES)
bench: train_gpt tokenize benches
	@BUILD=$(BUILD) PYTHON=$(PYTHON) dev/bench.sh
bench-ranks: train_gpt
	@PYTHON=$(PYTHON) dev/bench_ranks.sh
bench-checkpoint: $(BUILD)/dev/bench_checkpoint
	@BUILD=$(BUILD) dev/bench_checkpoint.sh
dev-cuda: $(BUILD)/dev/cuda_graded
	@$<
planner-check: train_gpt
	@$(PYTHON) dev/planner_check.py && $(PYTHON) dev/planner_gpu.py
planner-here: train_gpt
	@$(PYTHON) dev/planner_here.py
dev/ckpt: $(BUILD)/dev/ckpt FORCE
	@cmp -s $< $@ || cp -f $< $@
quickstart:
	@PYTHON=$(PYTHON) scripts/quickstart.sh
clean:
	rm -rf build train_gpt tokenize test/test_gpt dev/ckpt

.PHONY: all tests run-tests test test-full coverage faults check ptxas benches bench bench-ranks bench-checkpoint \
        dev-cuda gpu-check planner-check planner-here quickstart clean FORCE
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
