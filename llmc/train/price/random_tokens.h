// Tokens to measure steps on.
#pragma once
#include "llmc/train/data/dataset.h"

inline namespace price {

// `count` random ids in a file that is gone already. Under model.document_mask documents have a quarter of a
// row each, and begin with the last id. REQUIRES: m.vocab is resolved.
Dataset random_tokens(const ModelConfig& m, size_t count);

}  // namespace price
