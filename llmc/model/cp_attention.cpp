#include "llmc/model/cp_attention.h"

#include <vector>

#include "llmc/base/check.h"

namespace PRECISION::inline model {

void CpAttention::add_to(ArenaOf arena, const Dims& d, size_t N, bool backward) {
    if (cp.size == 1) return;
    const char* const name = "attention over cp";
    const size_t width = size_t(by_heads() ? d.W : 2 * d.K * cp.size);      // of a token here
    arena.add(name, &rows, N * width);
    arena.add(name, &by_rank, N * width);
    if (backward) arena.add(name, &drows, N * width);
    if (!by_heads()) return;
    arena.add(name, &sent, N * width);
    arena.add(name, &out, N * size_t(d.A));
    if (backward) arena.add(name, &dout, N * size_t(d.A));
}

size_t CpAttention::reduction_bytes(const Dims& d, size_t N) const {
    return by_heads() ? 0 : N * size_t(cp.size) * size_t(2 * d.K) * sizeof(floatX);
}

// Of a sequence: the first chunks of all ranks are the first half of the row. The second chunks are the other
// half, the last rank's first.
void CpAttention::to_rows(floatX* to, const floatX* from, int B, int T, int width) const {
    const ptrdiff_t row = width, chunk = part().length(T) * row, of_rank = B * 2 * chunk;
    for (int b = 0; b < B; b++) {
        floatX* const sequence = to + b * T * row;
        const ops::RowCopy early = {.from = from + b * 2 * chunk, .stride = of_rank, .out_stride = chunk,
                                    .rows = cp.size, .width = size_t(chunk)};
        ops::RowCopy late = early;
        late.from += chunk;
        late.out_stride = -chunk;
        ops::copy_rows(sequence, early);
        ops::copy_rows(sequence + (2 * cp.size - 1) * chunk, late);
    }
}

void CpAttention::to_ranks(floatX* to, const floatX* from, int B, int T, int width) const {
    const ptrdiff_t row = width, chunk = part().length(T) * row, of_rank = B * 2 * chunk;
    for (int b = 0; b < B; b++) {
        floatX* const own = to + b * 2 * chunk;
        const ops::RowCopy early = {.from = from + b * T * row, .stride = chunk, .out_stride = of_rank,
                                    .rows = cp.size, .width = size_t(chunk)};
        ops::RowCopy late = early;
        late.from += (2 * cp.size - 1) * chunk;
        late.stride = -chunk;
        ops::copy_rows(own, early);
        ops::copy_rows(own + chunk, late);
    }
}

// ---------------------------------------------------------------------------------------------------------
// gather

// rows = K and V of whole rows. REQUIRES: v is right behind k.
void CpAttention::gather_keys(const floatX* k, const ops::AttentionDims& d) const {
    const int N = d.B * d.Tq, width = 2 * d.KV() * d.D;
    const size_t count = size_t(N) * size_t(width);
    floatX* const own = by_rank + size_t(cp.index) * count;
    ops::copy_rows(own, {.from = k, .stride = ptrdiff_t(d.kv_stride), .out_stride = width, .rows = N,
                         .width = size_t(width)});
    cp.all_gather(by_rank, own, count);
    to_rows(rows, by_rank, d.B, d.Tq * cp.size, width);
}

// A chunk of a sequence: its first row here, and its call of attention on a row's keys up to its own end.
struct ChunkCall {
    size_t row;
    ops::AttentionDims dims;
};
static ChunkCall chunk_call(const RowPart& part, int b, int i, const ops::AttentionDims& d) {
    const int T = d.Tq * part.size, begin = part.begin(i, T), length = part.length(T);
    ChunkCall call = {size_t(b * d.Tq + i * length), d};
    call.dims.B = 1;
    call.dims.Tq = length;
    call.dims.Tk = begin + length;
    call.dims.q_offset = begin;
    call.dims.kv_stride = size_t(2 * d.KV() * d.D);
    if (!d.documents.positions) return call;
    call.dims.documents = {d.documents.positions + b * T + begin, d.documents.ends + b * T};
    return call;
}

void CpAttention::gather_forward(floatX* atty, real* lse, const floatX* q,
                                 const ops::AttentionDims& d) const {
    const size_t A = size_t(d.NH * d.D), K = size_t(d.KV() * d.D);
    const size_t T = size_t(d.Tq * cp.size);
    for (int b = 0; b < d.B; b++)
        for (int i = 0; i < part().chunks(); i++) {
            const ChunkCall c = chunk_call(part(), b, i, d);
            const floatX* const k = rows + size_t(b) * T * 2 * K;
            ops::attention_forward(atty + c.row * A, lse + c.row * size_t(d.NH), q + c.row * d.q_stride, k,
                                   k + K, c.dims);
        }
}

// In each sequence the later chunk sets dK and dV up to its end; zeros follow. Then the earlier chunk's are
// added. by_rank is free between the gather and the scatter, `rows` after the last call of attention.
void CpAttention::gather_backward(const ops::AttentionBackward& t, const ops::AttentionDims& d) const {
    const size_t A = size_t(d.NH * d.D), K = size_t(d.KV() * d.D), width = 2 * K;
    const int T = d.Tq * cp.size, N = d.B * d.Tq;
    for (int b = 0; b < d.B; b++) {
        const size_t first = size_t(b) * size_t(T) * width;
        const auto run = [&](int i, floatX* dk) {
            const ChunkCall c = chunk_call(part(), b, i, d);
            ops::attention_backward({.dq = t.dq + c.row * d.q_stride, .dk = dk, .dv = dk + K,
                                     .dout = t.dout + c.row * A, .out = t.out + c.row * A,
                                     .lse = t.lse + c.row * size_t(d.NH), .q = t.q + c.row * d.q_stride,
                                     .k = rows + first, .v = rows + first + K}, c.dims);
            return size_t(c.dims.Tk) * width;
        };
        floatX* const sums = drows + first;
        const size_t set = run(1, sums);
        ops::set_zero(sums + set, (size_t(T) * width - set) * sizeof(floatX));
        ops::add(sums, by_rank, run(0, by_rank));
    }
    to_ranks(rows, drows, d.B, T, int(width));
    cp.reduce_scatter(by_rank, rows, size_t(N) * width);
    ops::copy_rows(t.dk, {.from = by_rank, .stride = ptrdiff_t(width), .out_stride = ptrdiff_t(d.kv_stride),
                          .rows = N, .width = width});
}

// ---------------------------------------------------------------------------------------------------------
// heads

template <class T> static int width_of(std::initializer_list<Columns<T>> columns) {
    int sum = 0;
    for (const Columns<T>& c : columns) sum += c.width;
    return sum;
}

// All-to-all with equal counts.
static void trade(const Axis& cp, floatX* dst, const floatX* src, size_t count) {
    const std::vector<size_t> counts(size_t(cp.size), count);
    Pending p = cp.start_all_to_all(dst, src, counts.data(), counts.data());
    cp.wait(p);
}

// whole (R, width) = these columns of this rank's heads, of all tokens.
void CpAttention::take_heads(floatX* whole, std::initializer_list<Columns<const floatX>> columns,
                             const ops::AttentionDims& d) const {
    const int N = d.B * d.Tq, width = width_of(columns);
    const size_t count = size_t(N) * size_t(width);
    for (int rank = 0; rank < cp.size; rank++) {
        floatX* to = sent + size_t(rank) * count;
        for (const auto& c : columns) {
            ops::copy_rows(to, {.from = c.at + rank * c.width, .stride = c.stride, .out_stride = width,
                                .rows = N, .width = size_t(c.width)});
            to += c.width;
        }
    }
    trade(cp, by_rank, sent, count);
    to_rows(whole, by_rank, d.B, d.Tq * cp.size, width);
}

// The other way.
void CpAttention::give_heads(std::initializer_list<Columns<floatX>> columns, const floatX* whole,
                             const ops::AttentionDims& d) const {
    const int N = d.B * d.Tq, width = width_of(columns);
    const size_t count = size_t(N) * size_t(width);
    to_ranks(by_rank, whole, d.B, d.Tq * cp.size, width);
    trade(cp, sent, by_rank, count);
    for (int rank = 0; rank < cp.size; rank++) {
        const floatX* from = sent + size_t(rank) * count;
        for (const auto& c : columns) {
            ops::copy_rows(c.at + rank * c.width, {.from = from, .stride = width, .out_stride = c.stride,
                                                   .rows = N, .width = size_t(c.width)});
            from += c.width;
        }
    }
}

// Whole rows of this rank's heads: q, k and v side by side.
static ops::AttentionDims of_heads(ops::AttentionDims d, int cp) {
    d.key_heads = d.KV() / cp;
    d.NH /= cp;
    d.Tq = d.Tk = d.Tq * cp;
    d.q_stride = d.kv_stride = size_t((d.NH + 2 * d.key_heads) * d.D);
    return d;
}

void CpAttention::heads_forward(floatX* atty, real* lse, const floatX* q, const floatX* k, const floatX* v,
                                const ops::AttentionDims& d) const {
    const ops::AttentionDims own = of_heads(d, cp.size);
    const int stride = int(d.q_stride), A = own.NH * d.D, K = own.KV() * d.D;
    take_heads(rows, {{q, stride, A}, {k, stride, K}, {v, stride, K}}, d);
    ops::attention_forward(out, lse, rows, rows + A, rows + A + K, own);
    give_heads({{atty, d.NH * d.D, A}}, out, d);
}

void CpAttention::heads_backward(const ops::AttentionBackward& t, const ops::AttentionDims& d) const {
    const ops::AttentionDims own = of_heads(d, cp.size);
    const int stride = int(d.q_stride), A = own.NH * d.D, K = own.KV() * d.D;
    take_heads(rows, {{t.q, stride, A}, {t.k, stride, K}, {t.v, stride, K}}, d);
    take_heads(out, {{t.out, d.NH * d.D, A}}, d);
    take_heads(dout, {{t.dout, d.NH * d.D, A}}, d);
    ops::attention_backward({.dq = drows, .dk = drows + A, .dv = drows + A + K, .dout = dout, .out = out,
                             .lse = t.lse, .q = rows, .k = rows + A, .v = rows + A + K}, own);
    give_heads({{t.dq, stride, A}, {t.dk, stride, K}, {t.dv, stride, K}}, drows, d);
}

// ---------------------------------------------------------------------------------------------------------

void CpAttention::forward(floatX* atty, real* lse, const floatX* q, const floatX* k, const floatX* v,
                          const ops::AttentionDims& d) const {
    if (cp.size == 1) return ops::attention_forward(atty, lse, q, k, v, d);
    if (by_heads()) return heads_forward(atty, lse, q, k, v, d);
    gather_keys(k, d);
    gather_forward(atty, lse, q, d);
}

void CpAttention::backward(const ops::AttentionBackward& t, const ops::AttentionDims& d) const {
    if (cp.size == 1) return ops::attention_backward(t, d);
    CHECK(!t.dbias, "attention over cp sums no bias");
    if (by_heads()) return heads_backward(t, d);
    gather_keys(t.k, d);
    gather_backward(t, d);
}

}  // namespace PRECISION::model
