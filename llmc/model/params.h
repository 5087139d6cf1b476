// Every parameter tensor of the model, declared once.
//
// Allocation, pointers, initialisation, tensor parallelism, decay, gradient norm, checkpoint, import and
// export derive from these rows: a new weight is a row, a struct field and a line of math.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "llmc/model/dims.h"

inline namespace model {

// How a tensor is cut over the tp axis. None: whole on every rank, its gradient partial over tp; Rows: output
// features (or vocabulary rows); Cols: input features.
enum class Split { None, Rows, Cols };

// Keep, Add: r and z of the shortcut; see constant(). From Embed on tensors start with normal numbers; see
// deviation(). Residual: a matrix that writes into the stream. Value: an embedding of values.
enum class Init { Ones, Zeros, Keep, Add, Embed, Matrix, Residual, Head, Value };

template <class T> struct EmbedTensors { T *wte, *wpe, *lnew, *lneb; };      // ln: with embed_norm
template <class T> struct BlockTensors {
    T *residw, *x0w;                        // with the shortcut
    T *ln1w, *ln1b, *qkvw, *qkvb, *qnw, *knw, *attprojw, *attprojb, *ln2w, *ln2b;
    T *fcw, *fcb, *fcprojw, *fcprojb;
    T *gatew, *wve;                         // in blocks with a value embedding
};
template <class T> struct FinalTensors { T *lnfw, *lnfb, *headw, *headb; };       // head: where not tied

// A row of the tables below: a tensor without its place in memory.
struct Param {
    const char* name;             // llm.c's
    int rows, cols;               // as stored here; a vector is (rows, 1). No rows: the model has no such
                                  // tensor, and the group's member is null
    int whole_rows;               // of the whole model's tensor, without padding
    Split split;
    Init init;
    bool decay;
    std::array<int, 3> fused = {};        // rows here of each matrix that is fused by rows into this one
                                          // (q, k, v), each split and exported by itself. Zeros: one matrix

    // Filled in by place(). Row i here is row first_row + i of the whole tensor; rows from whole_rows on are
    // padding. Row i of fused matrix m is row tp_index * fused[m] + i of the whole matrix m, which has
    // tp * fused[m] rows. Column i here is column first_col + i.
    int whole_cols = 0, first_row = 0, first_col = 0, tp = 1, tp_index = 0;

    // An embedding: its rows are looked up.
    bool is_table() const { return init == Init::Embed || init == Init::Value; }
    bool is_matrix() const { return decay && !is_table(); }
    size_t count() const { return size_t(rows) * cols; }                    // stored, padding included
    size_t whole() const { return size_t(whole_rows) * whole_cols; }        // counted, saved, exported
    bool is_fused() const { return fused[0] > 0; }
    int used_rows() const { return is_fused() ? rows : std::clamp(whole_rows - first_row, 0, rows); }
    size_t used() const { return size_t(used_rows()) * cols; }              // stored, without padding rows
};

inline void place(Param& p, const Dims& d) {
    p.whole_cols = p.split == Split::Cols ? p.cols * d.tp : p.cols;
    if (p.split != Split::None) {
        p.tp = d.tp;
        p.tp_index = d.tp_index;
    }
    p.first_row = p.split == Split::Rows ? p.rows * d.tp_index : 0;
    p.first_col = p.split == Split::Cols ? p.cols * d.tp_index : 0;
}

// Standard deviation of a tensor's initial normal values; 0 for tensors with a constant initial value.
inline double deviation(const Param& p, const Dims& d) {
    if (p.init < Init::Embed) return 0;
    if (d.kind.init == InitKind::Gpt2) return p.init == Init::Residual ? 0.02 / std::sqrt(2.0 * d.L) : 0.02;
    if (p.init == Init::Embed) return 1;
    if (p.init == Init::Value) return 1 / std::sqrt(double(d.C));       // as Wv, whose values it is added to
    return p.init == Init::Matrix ? 1 / std::sqrt(double(p.whole_cols)) : 0;
}

// Constant initial value of the other tensors; l: block of the whole model. Keep falls from 1.15 to 1.05 over
// the blocks, Add from 0.2 to 0.05.
inline double constant(const Param& p, int l, const Dims& d) {
    const double depth = double(l) / std::max(1, d.L - 1);
    if (p.init == Init::Keep) return 1.15 - 0.1 * depth;
    if (p.init == Init::Add) return 0.2 - 0.15 * depth;
    return p.init == Init::Ones;
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
    const int C = d.C, V = d.V, Vp = d.Vp, maxT = d.maxT, learned = d.kind.rope.used ? 0 : maxT;
    const int norm = d.kind.embed_norm ? C : 0;
    const int gain = d.kind.gain ? norm : 0, shift = d.kind.shift() ? norm : 0;
    return placed<G>({
    // member       name         rows      cols whole   split init      decay
    { &G::wte,      {"wte",      Vp,       C,   V,      Rows, Embed,    true } },
    { &G::wpe,      {"wpe",      learned,  C,   maxT,   None, Embed,    true } },
    { &G::lnew,     {"lnew",     gain,     1,   C,      None, Ones,     false} },
    { &G::lneb,     {"lneb",     shift,    1,   C,      None, Zeros,    false} },
    }, d);
}

// Of block l of the whole model.
template <class T> std::vector<ParamRow<BlockTensors<T>>> block_params(const Dims& d, int l) {
    using G = BlockTensors<T>;
    using enum Split;
    using enum Init;
    const int C = d.C, A = d.A, K = d.K, W = d.W, F = d.F, P = d.P(), tp = d.tp;
    const int gain = d.kind.gain ? C : 0, shift = d.kind.shift() ? C : 0, bias = d.kind.bias;
    const int D = d.D, qkv_bias = d.kind.qkv_bias, of_head = d.kind.qk_gain ? D : 0;
    const int mixes = d.kind.shortcut, values = d.has_values(l) ? d.V : 0, gates = values ? d.KV : 0,
              heads = d.KV * tp;
    const std::array<int, 3> qkv = {A, K, K}, halves = P > F ? std::array{F, F, 0} : std::array{0, 0, 0};
    return placed<G>({
    // member       name         rows      cols whole   split init      decay  fused
    { &G::residw,   {"residw",   mixes,    1,   1,      None, Keep,     false} },
    { &G::x0w,      {"x0w",      mixes,    1,   1,      None, Add,      false} },
    { &G::ln1w,     {"ln1w",     gain,     1,   C,      None, Ones,     false} },
    { &G::ln1b,     {"ln1b",     shift,    1,   C,      None, Zeros,    false} },
    { &G::qkvw,     {"qkvw",     W,        C,   W * tp, Rows, Matrix,   true,  qkv} },
    { &G::qkvb,     {"qkvb", qkv_bias * W, 1,   W * tp, Rows, Zeros,    false, qkv} },
    { &G::qnw,      {"qnw",      of_head,  1,   D,      None, Ones,     false} },
    { &G::knw,      {"knw",      of_head,  1,   D,      None, Ones,     false} },
    { &G::attprojw, {"attprojw", C,        A,   C,      Cols, Residual, true } },
    { &G::attprojb, {"attprojb", bias * C, 1,   C,      None, Zeros,    false} },
    { &G::ln2w,     {"ln2w",     gain,     1,   C,      None, Ones,     false} },
    { &G::ln2b,     {"ln2b",     shift,    1,   C,      None, Zeros,    false} },
    { &G::fcw,      {"fcw",      P,        C,   P * tp, Rows, Matrix,   true,  halves} },
    { &G::fcb,      {"fcb",      bias * P, 1,   P * tp, Rows, Zeros,    false, halves} },
    { &G::fcprojw,  {"fcprojw",  C,        F,   C,      Cols, Residual, true } },
    { &G::fcprojb,  {"fcprojb",  bias * C, 1,   C,      None, Zeros,    false} },
    { &G::gatew,    {"gatew",    gates,    kGateInputs, heads, Rows, Zeros, true} },
    { &G::wve,      {"wve",      values,   K,   d.V,    Cols, Value,    true } },
    }, d);
}

template <class T> std::vector<ParamRow<FinalTensors<T>>> final_params(const Dims& d) {
    using G = FinalTensors<T>;
    using enum Split;
    using enum Init;
    const int C = d.C, V = d.V, gain = d.kind.gain ? C : 0, shift = d.kind.shift() ? C : 0;
    const int own = d.kind.tied ? 0 : d.Vp, bias = d.kind.bias ? own : 0;
    return placed<G>({
    { &G::lnfw,     {"lnfw",     gain,     1,   C,      None, Ones,     false} },
    { &G::lnfb,     {"lnfb",     shift,    1,   C,      None, Zeros,    false} },
    { &G::headw,    {"headw",    own,      C,   V,      Rows, Head,     true } },
    { &G::headb,    {"headb",    bias,     1,   V,      Rows, Zeros,    false} },
    }, d);
}

}  // namespace model
