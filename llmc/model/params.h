// Every parameter tensor of the model, declared once.
//
// Allocation, pointers, initialisation, tensor parallelism, decay, gradient norm, checkpoint, import and
// export derive from these rows: a new weight is a row, a struct field and a line of math.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/dtype.h"
#include "llmc/model/dims.h"

// How a tensor is cut over the tp axis. None: whole on every rank, its gradient partial over tp; Rows: output
// features (or vocabulary rows); Cols: input features.
enum class Split { None, Rows, Cols };

// Normal: std 0.02. Residual: 0.02 / sqrt(2L), for matrices that write into the residual stream (GPT-2).
enum class Init { Ones, Zeros, Normal, Residual };

template <class T> struct EmbedTensors { T *wte, *wpe; };
template <class T> struct BlockTensors {
    T *ln1w, *ln1b, *qkvw, *qkvb, *attprojw, *attprojb, *ln2w, *ln2b, *fcw, *fcb, *fcprojw, *fcprojb;
};
template <class T> struct FinalTensors { T *lnfw, *lnfb; };

// A row of the tables below: a tensor without its place in memory.
struct Param {
    const char* name;             // llm.c's
    int rows, cols;               // as stored here; a vector is (rows, 1). No rows: the model has no such
                                  // tensor, and the group's member is null
    int whole_rows;               // of the whole model's tensor, without padding
    Split split;
    Init init;
    bool decay;
    int fused;                    // matrices fused by rows (q, k, v: 3), each split and exported by itself

    // Filled in by place(): row i of a fused matrix here is row first_row + i of the whole matrix, unless
    // the whole matrix is shorter; likewise columns.
    int whole_cols = 0, first_row = 0, first_col = 0;

    size_t count() const { return size_t(rows) * cols; }                    // stored, padding included
    size_t whole() const { return size_t(whole_rows) * whole_cols; }        // counted, saved, exported
    int used_rows() const { return std::clamp(whole_rows - fused * first_row, 0, rows); }
    size_t used() const { return size_t(used_rows()) * cols; }              // stored, without padding rows
};

inline void place(Param& p, const Dims& d) {
    p.whole_cols = p.split == Split::Cols ? p.cols * d.tp : p.cols;
    p.first_row = p.split == Split::Rows ? p.rows / p.fused * d.tp_index : 0;
    p.first_col = p.split == Split::Cols ? p.cols * d.tp_index : 0;
}

template <class Group> struct ParamRow;
template <template <class> class G, class T> struct ParamRow<G<T>> { T* G<T>::* member; Param param; };

template <class G> std::vector<ParamRow<G>> placed(std::vector<ParamRow<G>> table, const Dims& d) {
    std::erase_if(table, [](const ParamRow<G>& row) { return row.param.rows == 0; });
    for (ParamRow<G>& row : table) place(row.param, d);
    return table;
}

template <class T> std::vector<ParamRow<EmbedTensors<T>>> embed_params(const Dims& d) {
    using G = EmbedTensors<T>;
    using enum Split;
    using enum Init;
    const int C = d.C, V = d.V, Vp = d.Vp, maxT = d.maxT;
    return placed<G>({
    // member       name         rows          cols whole  split init      decay  fused
    { &G::wte,      {"wte",      Vp,           C,   V,     Rows, Normal,   true,  1} },
    { &G::wpe,      {"wpe",      maxT,         C,   maxT,  None, Normal,   true,  1} },
    }, d);
}

template <class T> std::vector<ParamRow<BlockTensors<T>>> block_params(const Dims& d) {
    using G = BlockTensors<T>;
    using enum Split;
    using enum Init;
    const int C = d.C, A = d.A, F = d.F, P = d.P(), halves = P / F, C3 = 3 * C, P4 = P * d.tp;
    const int gain = d.kind.gain ? C : 0, shift = d.kind.shift() ? C : 0, bias = d.kind.bias;
    return placed<G>({
    // member       name         rows          cols whole  split init      decay  fused
    { &G::ln1w,     {"ln1w",     gain,         1,   C,     None, Ones,     false, 1} },
    { &G::ln1b,     {"ln1b",     shift,        1,   C,     None, Zeros,    false, 1} },
    { &G::qkvw,     {"qkvw",     3 * A,        C,   C3,    Rows, Normal,   true,  3} },
    { &G::qkvb,     {"qkvb",     bias * 3 * A, 1,   C3,    Rows, Zeros,    false, 3} },
    { &G::attprojw, {"attprojw", C,            A,   C,     Cols, Residual, true,  1} },
    { &G::attprojb, {"attprojb", bias * C,     1,   C,     None, Zeros,    false, 1} },
    { &G::ln2w,     {"ln2w",     gain,         1,   C,     None, Ones,     false, 1} },
    { &G::ln2b,     {"ln2b",     shift,        1,   C,     None, Zeros,    false, 1} },
    { &G::fcw,      {"fcw",      P,            C,   P4,    Rows, Normal,   true,  halves} },
    { &G::fcb,      {"fcb",      bias * P,     1,   P4,    Rows, Zeros,    false, halves} },
    { &G::fcprojw,  {"fcprojw",  C,            F,   C,     Cols, Residual, true,  1} },
    { &G::fcprojb,  {"fcprojb",  bias * C,     1,   C,     None, Zeros,    false, 1} },
    }, d);
}

template <class T> std::vector<ParamRow<FinalTensors<T>>> final_params(const Dims& d) {
    using G = FinalTensors<T>;
    using enum Split;
    using enum Init;
    const int C = d.C, gain = d.kind.gain ? C : 0, shift = d.kind.shift() ? C : 0;
    return placed<G>({
    { &G::lnfw,     {"lnfw",     gain,         1,   C,     None, Ones,     false, 1} },
    { &G::lnfb,     {"lnfb",     shift,        1,   C,     None, Zeros,    false, 1} },
    }, d);
}
