// The legend of every shape comment. Dimensions that tensor parallelism cuts have this rank's size.
//
//     L   blocks                         B   sequences of a micro-batch
//     C   channels                       T   tokens of a sequence; maxT: positions of the model
//     NH  heads here                     N   tokens of a micro-batch, B T
//     D   channels of a head             n   tokens of a rank's slice, N / tp rounded up
//     A   channels of the heads here     V   vocabulary;  Vp: rows here, a multiple of 128;
//     F   width of the feed-forward here     v0: the first row here
//
// On one rank A = C, F = 4C, v0 = 0, and Vp is V rounded up. The last ranks of tp may hold rows past the
// vocabulary, even only such rows.
#pragma once
#include <algorithm>
#include <cstdint>

#include "llmc/comm/axis.h"

struct Dims {
    int L, C, NH, D, A, F, V, Vp, v0, maxT;
    int tp, tp_index;

    int vocab_here() const { return std::clamp(V - v0, 0, Vp); }
};

// REQUIRES: tp.size divides heads.
inline Dims make_dims(int layers, int heads, int channels, int context, int vocab, const Axis& tp = {}) {
    const int D = channels / heads, NH = heads / tp.size;
    const int Vp = (vocab + 128 * tp.size - 1) / (128 * tp.size) * 128;
    return {.L = layers, .C = channels, .NH = NH, .D = D, .A = NH * D, .F = 4 * channels / tp.size,
            .V = vocab, .Vp = Vp, .v0 = tp.index * Vp, .maxT = context,
            .tp = tp.size, .tp_index = tp.index};
}
