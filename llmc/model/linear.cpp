#include "llmc/model/linear.h"

#include <algorithm>

namespace PRECISION::inline model {

// ---------------------------------------------------------------------------------------------------------
// codes

// The matrices of a block that have codes, a row each.
struct CodedRow {
    const char* name;
    CodedMatrix BlockCodes::* codes;
    floatX* BlockTensors<floatX>::* w;
    int rows, columns;
    size_t count() const { return size_t(rows) * size_t(columns); }
};
static std::array<CodedRow, kCodedMatrices> coded_rows(const Dims& d) {
    using B = BlockCodes;
    using W = BlockTensors<floatX>;
    return {{{"qkvw", &B::qkvw, &W::qkvw, d.W, d.C},
             {"attprojw", &B::attprojw, &W::attprojw, d.C, d.A},
             {"fcw", &B::fcw, &W::fcw, d.P(), d.C},
             {"fcprojw", &B::fcprojw, &W::fcprojw, d.C, d.F}}};
}

std::vector<std::string> coded_names() {
    std::vector<std::string> names;
    for (const CodedRow& row : coded_rows({})) names.push_back(row.name);
    return names;
}

void add_input_codes(ArenaOf arena, InputCodes& s, const Dims& d, size_t N, const Axis& tp) {
    const int widest = std::max({d.C, d.A, d.W, d.F, d.P()});
    arena.add("FP8 codes of a product's input", &s.codes, N * size_t(widest));
    arena.add("FP8 codes of a product's input", &s.amaxes, size_t(tp.size) * size_t(ops::kFp8Parts));
    arena.add("FP8 codes of a product's input", &s.inverse, 1);
}

// x (rows, columns), with its amaxes in s.own_amaxes(). cut: these are of a rank's part of a tensor, whose
// largest element is some rank's.
static void quantize(const ops::Fp8Matrix& to, uint8_t* transposed, const floatX* x, int rows, int columns,
                     bool cut, const InputCodes& s, const Axis& tp) {
    const float* const own = s.own_amaxes(tp);
    const float* const all = cut ? tp.all_gather(s.amaxes, own, size_t(ops::kFp8Parts)) : own;
    ops::quantize(to, transposed, x, all, ops::kFp8Parts * (cut ? tp.size : 1), rows, columns);
}

void CodedBlocks::add_to(ArenaOf weights, const Dims& d) {
    for (Slot& slot : slots)
        for (const CodedRow& row : coded_rows(d)) {
            CodedMatrix& m = slot.codes.*row.codes;
            weights.add("FP8 codes of weights", &m.transposed.codes, row.count());
            if (gathered) continue;
            weights.add("FP8 codes of weights", &m.w.codes, row.count());
            weights.add("FP8 codes of weights", &m.w.inverse, 1);
        }
}

static void code(CodedMatrix& m, const floatX* w, const CodedRow& row, const InputCodes& s, const Axis& tp) {
    ops::largest(s.own_amaxes(tp), w, row.count());
    quantize(m.w, m.transposed.codes, w, row.rows, row.columns, true, s, tp);
}

const BlockCodes* CodedBlocks::of(int l, const BlockTensors<floatX>& w, const BlockCodes* codes,
                                  bool backward, uint64_t version, const Dims& d, const InputCodes& s,
                                  const Axis& tp) {
    if (slots.empty()) return nullptr;
    CHECK(gathered == (codes != nullptr), "block {} comes {} codes", l, codes ? "as" : "without its");
    Slot& slot = slots[size_t(l) % slots.size()];
    const bool kept = slot.block == l && slot.version == version;
    const bool transposes = codes && backward && !(kept && slot.transposed);
    for (const CodedRow& row : coded_rows(d)) {
        CodedMatrix& m = slot.codes.*row.codes;
        if (codes) m.w = (codes->*row.codes).w;
        else if (!kept) code(m, w.*row.w, row, s, tp);
        m.transposed.inverse = m.w.inverse;
        if (transposes) ops::transpose_codes(m.transposed.codes, m.w.codes, row.rows, row.columns);
    }
    slot.transposed = !codes || transposes || (kept && slot.transposed);
    slot.block = l;
    slot.version = version;
    return &slot.codes;
}

CodedPlace::CodedPlace(const Layout& layout, int l) : others(layout.block_at[size_t(l)]) {
    const int b = layout.block(l);
    const std::vector<std::string> names = coded_names();
    for (size_t i = 0; i < kCodedMatrices; i++)
        for (const Tensor& t : layout.tensors)
            if (t.bucket == b && t.param.name == names[i]) matrices[i] = layout.in_bucket(t);
    for (size_t& at : others)
        if (at != kAbsent && at >= layout.coded[size_t(b)]) at = kAbsent;
}

BlockTensors<floatX> CodedPlace::rest(floatX* bucket) const {
    return bind<BlockTensors<floatX>>(bucket, others);
}

BlockCodes CodedPlace::codes(uint8_t* bucket, float* inverses) const {
    BlockCodes codes = {};
    size_t i = 0;
    for (const CodedRow& row : coded_rows({})) {
        (codes.*row.codes).w = {.codes = bucket + matrices[i].begin, .inverse = inverses + i,
                                .format = Fp8::E4M3};
        i++;
    }
    return codes;
}

// ---------------------------------------------------------------------------------------------------------
// products

// x (N, columns) as codes, until the next product. cut: tp cuts x. Amaxes that an op has left are those of
// what this rank wrote, which may be a part of x.
static ops::Fp8Matrix coded(const LinearCall& call, const floatX* x, int columns, Fp8 format, bool cut,
                            Amaxes of_x) {
    const InputCodes& s = call.inputs;
    const ops::Fp8Matrix to = {.codes = s.codes, .inverse = s.inverse, .format = format};
    if (of_x == Amaxes::Pass) ops::largest(s.own_amaxes(call.tp), x, size_t(call.N) * size_t(columns));
    quantize(to, nullptr, x, call.N, columns, cut || of_x == Amaxes::Left, s, call.tp);
    return to;
}

void LinearCall::forward(floatX* out, const floatX* x, const Linear& l, Amaxes of_x) const {
    if (!l.codes) return ops::matmul_forward(out, x, l.w, l.bias, N, l.C, l.OC);
    ops::matmul_fp8(out, coded(*this, x, l.C, Fp8::E4M3, l.split == Split::Cols, of_x), l.codes->w, l.bias, N,
                    l.C, l.OC);
}

void LinearCall::forward(floatX* act, floatX* pre, const floatX* x, const Linear& l, Amaxes of_x,
                         Activation f, int F) const {
    if (!l.codes) return ops::matmul_activation_forward(act, pre, x, l.w, l.bias, f, N, l.C, F);
    forward(pre, x, l, of_x);
    ops::activation_forward(act, pre, f, N, F, inputs.own_amaxes(tp));
}

void LinearCall::backward_input(floatX* dx, const floatX* dout, const Linear& l, Amaxes of_dout) const {
    if (!l.codes) return ops::matmul_backward_input(dx, dout, l.w, N, l.C, l.OC);
    ops::matmul_fp8(dx, coded(*this, dout, l.OC, Fp8::E5M2, l.split == Split::Rows, of_dout),
                    l.codes->transposed, nullptr, N, l.OC, l.C);
}

void LinearCall::backward_input(floatX* dpre, floatX* dact, const floatX* dout, const Linear& l,
                                Amaxes of_dout, const floatX* pre, Activation f, real* dbias) const {
    if (!l.codes)
        return ops::matmul_activation_backward_input(dpre, dact, dout, l.w, pre, f, N, l.C, l.OC, dbias);
    backward_input(dact, dout, l, of_dout);
    ops::activation_backward(dpre, dact, pre, f, N, l.C, inputs.own_amaxes(tp));
    ops::bias_backward(dbias, dpre, N, ops::pre_width(f, l.C));
}

}  // namespace PRECISION::model
