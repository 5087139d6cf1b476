// The legend of every shape comment.
//
//     L   blocks                         B   sequences of a micro-batch
//     C   channels                       T   tokens of a sequence; maxT: positions that the model knows
//     NH  heads                          N   tokens of a micro-batch, B T
//     D   channels of a head, C / NH     n   tokens of this rank's slice, N / tp
//     F   width of the feed-forward, 4C  V   vocabulary;  Vp: padded to a multiple of 128
#pragma once
#include <cstdint>

struct Dims {
    int L, C, NH, D, F, V, Vp, maxT;
};

inline Dims make_dims(int layers, int heads, int channels, int context, int vocab) {
    return {.L = layers, .C = channels, .NH = heads, .D = channels / heads, .F = 4 * channels,
            .V = vocab, .Vp = (vocab + 127) / 128 * 128, .maxT = context};
}
