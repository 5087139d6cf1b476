// Room ops/decl: each operation once: formula, arguments with shapes, cost. README.md has the conventions.
// Called through ops::. ops/ops.h includes the list below in the namespace of each backend.
// The room knows no kernel: files of the same names in ops/cpu and ops/cuda compute.
#include "llmc/ops/decl/adamw.h"
#include "llmc/ops/decl/amaxes.h"
#include "llmc/ops/decl/attention.h"
#include "llmc/ops/decl/classifier.h"
#include "llmc/ops/decl/encoder.h"
#include "llmc/ops/decl/layernorm.h"
#include "llmc/ops/decl/matmul.h"
#include "llmc/ops/decl/memory.h"
#include "llmc/ops/decl/muon.h"
#include "llmc/ops/decl/quantized.h"
#include "llmc/ops/decl/rotary.h"
#include "llmc/ops/decl/shortcut.h"
#include "llmc/ops/decl/spread.h"
#include "llmc/ops/decl/values.h"
