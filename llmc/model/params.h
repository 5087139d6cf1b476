// Every parameter tensor of the model, declared once.
//
// Allocation, pointers, initialisation, tensor parallelism, decay, gradient norm, checkpoint and interchange
// all derive from these rows: a new weight is one row, one struct field and one line of math.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/dtype.h"
#include "llmc/model/dims.h"

// How a tensor is cut over the tp axis. None: whole on every rank, its gradient partial over tp; Rows: output
// features (or vocabulary rows); Cols: input features.
enum class Split { None, Rows, Cols };

// Normal: std 0.02. Residual: 0.02 / sqrt(2L), for what writes into the residual stream (GPT-2).
enum class Init { Ones, Zeros, Normal, Residual };

template <class T> struct EmbedTensors { T *wte, *wpe; };
template <class T> struct BlockTensors {
    T *ln1w, *ln1b, *qkvw, *qkvb, *attprojw, *attprojb, *ln2w, *ln2b, *fcw, *fcb, *fcprojw, *fcprojb;
};
template <class T> struct FinalTensors { T *lnfw, *lnfb; };

// What a row says, without its slot.
struct Param {
    const char* name;             // llm.c's
    int rows, cols;               // as stored; a vector is (rows, 1)
    int used_rows;                // rows without padding: what is counted, saved and exported
    Split split;
    Init init;
    bool decay;
    std::vector<int> parts;       // row blocks of a fused matrix, each split and exported by itself; {}: one
    const char* interchange;      // Hugging Face's GPT-2 name; matrices are stored transposed there (Conv1D)
    size_t count() const { return size_t(rows) * cols; }
    size_t used() const { return size_t(used_rows) * cols; }
};

template <class Group> struct Slot;
template <template <class> class G, class T> struct Slot<G<T>> { T* G<T>::* slot; Param param; };

template <class T> std::vector<Slot<EmbedTensors<T>>> embed_params(const Dims& d) {
    using G = EmbedTensors<T>;
    using enum Split;
    using enum Init;
    const int C = d.C, V = d.V, Vp = d.Vp, maxT = d.maxT;
    return {
    // slot         name         rows   cols used   split init      decay  parts      interchange
    { &G::wte,      {"wte",      Vp,    C,   V,     Rows, Normal,   true,  {},        "wte.weight"} },
    { &G::wpe,      {"wpe",      maxT,  C,   maxT,  None, Normal,   true,  {},        "wpe.weight"} },
    };
}

template <class T> std::vector<Slot<BlockTensors<T>>> block_params(const Dims& d) {
    using G = BlockTensors<T>;
    using enum Split;
    using enum Init;
    const int C = d.C, F = d.F;
    return {
    // slot         name         rows   cols used   split init      decay  parts      interchange
    { &G::ln1w,     {"ln1w",     C,     1,   C,     None, Ones,     false, {},        "ln_1.weight"} },
    { &G::ln1b,     {"ln1b",     C,     1,   C,     None, Zeros,    false, {},        "ln_1.bias"} },
    { &G::qkvw,     {"qkvw",     3 * C, C,   3 * C, Rows, Normal,   true,  {C, C, C}, "attn.c_attn.weight"} },
    { &G::qkvb,     {"qkvb",     3 * C, 1,   3 * C, Rows, Zeros,    false, {C, C, C}, "attn.c_attn.bias"} },
    { &G::attprojw, {"attprojw", C,     C,   C,     Cols, Residual, true,  {},        "attn.c_proj.weight"} },
    { &G::attprojb, {"attprojb", C,     1,   C,     None, Zeros,    false, {},        "attn.c_proj.bias"} },
    { &G::ln2w,     {"ln2w",     C,     1,   C,     None, Ones,     false, {},        "ln_2.weight"} },
    { &G::ln2b,     {"ln2b",     C,     1,   C,     None, Zeros,    false, {},        "ln_2.bias"} },
    { &G::fcw,      {"fcw",      F,     C,   F,     Rows, Normal,   true,  {},        "mlp.c_fc.weight"} },
    { &G::fcb,      {"fcb",      F,     1,   F,     Rows, Zeros,    false, {},        "mlp.c_fc.bias"} },
    { &G::fcprojw,  {"fcprojw",  C,     F,   C,     Cols, Residual, true,  {},        "mlp.c_proj.weight"} },
    { &G::fcprojb,  {"fcprojb",  C,     1,   C,     None, Zeros,    false, {},        "mlp.c_proj.bias"} },
    };
}

template <class T> std::vector<Slot<FinalTensors<T>>> final_params(const Dims& d) {
    using G = FinalTensors<T>;
    using enum Split;
    using enum Init;
    const int C = d.C;
    return {
    { &G::lnfw,     {"lnfw",     C,     1,   C,     None, Ones,     false, {},        "ln_f.weight"} },
    { &G::lnfb,     {"lnfb",     C,     1,   C,     None, Zeros,    false, {},        "ln_f.bias"} },
    };
}
