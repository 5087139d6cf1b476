# Files of a folder that are compiled by the same flags are compiled up to sixteen at a time, as
# $(BUILD)/unity/FOLDER/unity_N.cpp: what they include takes longer than they do.
UNITY ?= 1
UNITY_SIZE := 16
ALONE := $(addprefix llmc/,comm/reductions.cpp train/report/embedded.cpp) \
         $(addprefix llmc/base/host/,cpu_guard.cpp version.cpp) \
         $(addprefix llmc/ops/cpu/,products/matmul.cpp attention%) \
         $(addprefix llmc/comm/transport/,mpi.cpp nccl.cpp nccl_meet.cpp nccl_times.cpp nccl_verbs.cpp)
hash := \#

# UNITED: all such files. OF_FILE: what it is made of; GROUP_OF_SOURCE: where that went.
group  = $(eval UNITED += $1)$(eval OF_$1 := $2)$(foreach s,$2,$(eval GROUP_OF_$s := $1))
# groups NAME FILES [1 ...]: NAME_1.cpp, NAME_2.cpp, ...; a word is added for each
groups = $(if $2,$(call group,$1_$(words $3 1).cpp,$(wordlist 1,$(UNITY_SIZE),$2))$(call \
         groups,$1,$(filter-out $(wordlist 1,$(UNITY_SIZE),$2),$2),$3 1))
# unite FOLDER FILES: those that are compiled coldly apart
unite  = $(call groups,$1/unity_cold,$(filter $(COLD),$2))$(call groups,$1/unity,$(filter-out $(COLD),$2))
# united FILES: these, or what they went into
united = $(sort $(foreach s,$1,$(or $(GROUP_OF_$s),$s)))

ifneq ($(UNITY),0)
$(foreach f,base io comm,$(call unite,llmc/$f,$(filter-out $(NUMERIC) $(ALONE),$(filter llmc/$f/%,$(SOURCES)))))
$(call unite,llmc/ops/cpu,$(filter $(NUMERIC),$(filter-out $(ALONE),$(filter llmc/ops/cpu/%,$(SOURCES)))))
$(call unite,llmc/train,$(filter-out $(NUMERIC) $(ALONE),$(filter llmc/model/% llmc/train/%,$(SOURCES))))
$(call unite,llmc/train/numeric,$(filter $(NUMERIC),$(filter llmc/model/% llmc/train/% train_gpt.cu,$(SOURCES))))
NUMERIC += $(filter llmc/ops/cpu/% llmc/train/numeric/%,$(UNITED))
COLD    += $(foreach g,$(UNITED),$(if $(findstring _cold_,$g),$g))
endif

# written where that is not what is there (not by $(file <...), which keeps some newlines, in make 4.3)
is_there = $(findstring <$(OF_$1:%=$(hash)include"%")>,<$(shell cat $(BUILD)/unity/$1 2>/dev/null)>)
$(foreach g,$(UNITED),$(if $(call is_there,$g),,$(eval $(BUILD)/unity/$g: FORCE)))
$(UNITED:%=$(BUILD)/unity/%): $(BUILD)/unity/%:
	@mkdir -p $(@D) && printf '#include"%s"\n' $(OF_$*) > $@

# what `make` says that it compiles: a file, or FOLDER/: FILE ... for each folder
of = $(if $(OF_$*.cpp),$(foreach d,$(sort $(dir $(OF_$*.cpp))),$d: $(foreach \
     f,$(OF_$*.cpp),$(if $(filter $d,$(dir $f)),$(notdir $f)))),$<)
