// Every operation, in the namespace of each backend; `ops::` is the one that this binary's model runs on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "llmc/base/dtype.h"

namespace PRECISION {

namespace cpu {
#include "llmc/ops/decl/adamw.h"
#include "llmc/ops/decl/attention.h"
#include "llmc/ops/decl/classifier.h"
#include "llmc/ops/decl/encoder.h"
#include "llmc/ops/decl/layernorm.h"
#include "llmc/ops/decl/matmul.h"
#include "llmc/ops/decl/memory.h"
}  // namespace cpu

namespace cuda {
#include "llmc/ops/decl/adamw.h"
#include "llmc/ops/decl/attention.h"
#include "llmc/ops/decl/classifier.h"
#include "llmc/ops/decl/encoder.h"
#include "llmc/ops/decl/layernorm.h"
#include "llmc/ops/decl/matmul.h"
#include "llmc/ops/decl/memory.h"
}  // namespace cuda

namespace ops = BACKEND;

}  // namespace PRECISION
