// Weights on disk: run.dir/step_N/ with model.safetensors, config.json and tokenizer.json.
//
// Tensors have the table's names ("wte", "h.3.qkvw"), the shapes of the table without padding rows, and are
// FP32 (FP64 in fp64 runs): the master weights. A folder is written under a temporary name, synced and
// renamed: one that is visible is complete.
#pragma once
#include <optional>
#include <string>

#include "llmc/base/check.h"
#include "llmc/base/config.h"
#include "llmc/model/layout.h"

namespace PRECISION {

struct Model;

struct Checkpoint {
    const Config& cfg;
    Model& model;
    std::string tokenizer_json;      // what the folder gets as tokenizer.json; empty: none

    // All ranks together. Returns the folder. Where it cannot be written, as on a full disk, nothing is left
    // of it: a warning says so, and the returned text is empty; if it was to be the last of a run, fatal()
    // says so.
    std::string save(int64_t step, bool last = false) const;

    // model.init: random weights, or those of a checkpoint's folder.
    void load_or_init() const;
    void load(const std::string& dir) const;

private:
    uint64_t bytes() const;          // of the weights on disk
    std::optional<Fatal> write(int64_t step) const;
};

}  // namespace PRECISION
