// One dial: a model and its training by model.depth, after nanochat (github.com/karpathy/nanochat).
//
//     channels     64 depth, rounded up to 128          heads     channels / 128
//     P            parameters of the blocks' matrices and of the head, by the tables of params.h
//     tokens       10.5 P
//     batch        2^round(log2(2^19 (P / P of depth 12)^0.383))
//     steps        tokens / batch;  decay: the last 65% of them
//     matrix_lr    0.02 s;  embed_lr 0.3 s w;  head_lr, lr: 0.008 s w
//                  s = (batch / 2^19)^0.5, w = (channels / 768)^-0.5
//     window       of the last layer 0 where the list ends with 0: (3, 3, 3, 0) of 6 layers is 3 3 3 0 3 0
#pragma once
#include "llmc/base/config/config.h"

inline namespace model {

// Sets each setting that depth implies and the user did not set; then sets depth to 0. Does nothing at depth
// 0. Ends in CHECK_INPUT if model.vocab is 0.
void apply_depth(Config& cfg);

}  // namespace model
