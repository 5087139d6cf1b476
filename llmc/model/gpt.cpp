#include "llmc/model/gpt.h"

#include "llmc/model/act_spreads.h"
#include "llmc/model/rotary_table.h"

namespace PRECISION::inline model {

Gpt::Gpt(const GptShape& s, const Axis& axis, const Part& p, const std::vector<int>& buffers,
         const CpAttention& over_cp)
    : shape(s), d(s.d), tp(axis), part(p), buffers(buffers), attention(over_cp),
      block{d, tp, s.level, attention}, logit_rows(std::min(ops::logit_rows(), s.N())),
      hosted(s.hosts_streams && s.backward ? int(p.chunks.size()) : 0, s.hosts_streams ? buffers[0] : 0) {
    block.halves = s.halves;
    CHECK(!s.halves || s.level == Recompute::None, "backward in two halves, with recomputation");
    CHECK(s.cp == attention.cp.size, "rows over {} ranks, attention over {}", s.cp, attention.cp.size);
    CHECK(buffers.size() == p.chunks.size(), "{} numbers of buffers for {} chunks", buffers.size(),
          p.chunks.size());
    size_t count = 0;
    for (size_t c = 0; c < buffers.size(); c++)
        count += size_t(buffers[c] * (p.chunks[c].end - p.chunks[c].begin));
    acts.resize(count);
    size_t first = 0;
    for (size_t c = 0; c < buffers.size(); c++)
        for (int i = 0; i < buffers[c]; i++, first += size_t(p.chunks[c].end - p.chunks[c].begin))
            acts[first].receives = !p.chunks[c].embeds || hosted;      // hosted: others' memory
    coded.slots.resize(size_t(s.coded_blocks));
    coded.gathered = s.gathers_codes;
    if (p.first) embedded.resize(size_t(buffers.front()));
    // by layers backward follows at once; a tied wte's gradient needs them once more
    if (p.last) head.resize(s.by_layers && !head_waits() ? 1 : size_t(buffers.back()));
}

size_t Gpt::reduction_bytes() const {
    return stream_count(shape.N()) * size_t(tp.size) * sizeof(floatX);
}

BlockActs& Gpt::of(int l, int buffer) {
    size_t first = 0;
    for (size_t c = 0;; c++) {
        const Chunk& chunk = part.chunks[c];
        const size_t blocks = size_t(chunk.end - chunk.begin);
        if (l < chunk.end) {
            CHECK(buffer >= 0 && buffer < buffers[c], "buffer {} of {}", buffer, buffers[c]);
            return acts[first + size_t(buffer) * blocks + size_t(l - chunk.begin)];
        }
        first += size_t(buffers[c]) * blocks;
    }
}

static void add_statistics(ArenaOf arena, const char* name, real** mean, real** rstd, const Dims& d,
                           size_t n) {
    if (has_mean(d.kind.norm)) arena.add(name, mean, n);
    arena.add(name, rstd, n);
}

void add_embed_acts(ArenaOf arena, const char* name, EmbedActs& a, const Dims& d, size_t n) {
    if (!d.kind.embed_norm) return;
    arena.add(name, &a.raw, n * size_t(d.C));
    add_statistics(arena, name, &a.mean, &a.rstd, d, n);
}

void add_head_acts(ArenaOf arena, const char* name, HeadActs& a, const Dims& d, size_t n) {
    arena.add(name, &a.xf, n * size_t(d.C));
    arena.add(name, &a.lnf, n * size_t(d.C));
    add_statistics(arena, name, &a.mean, &a.rstd, d, n);
}

void Gpt::add_to(ArenaOf arena, Arena* host) {
    const int tokens = shape.N();
    const size_t N = size_t(tokens), n = size_t(Slice(tp, tokens).n), C = size_t(d.C);
    const size_t Vp = part.last ? size_t(d.Vp) : 0, rows = part.last ? size_t(logit_rows) : 0;
    const bool sends = !shape.by_layers && (part.chunks.size() > 1 || !part.last);
    const size_t gradients = shape.by_layers ? size_t(buffers.front()) : 1;
    const Recompute level = shape.backward ? shape.level : Recompute::Block;
    add_block_acts(arena, acts, d, N, n, level, shape.halves,
                   hosted ? hosted.places() : SIZE_MAX);
    if (hosted) hosted.add_to(*host, d, N, n, level);
    add_rotary_table(arena, &block.rotary_table, d);
    add_block_scratch(arena, scratch, d, N, n, shape.backward, shape.level, tp, shape.halves);
    attention.add_to(arena, d, N, shape.backward);
    if (shape.coded_blocks) {
        add_input_codes(arena, scratch.inputs, d, N, tp);
        coded.add_to(arena.of(Purpose::Weights), d);
    }
    for (EmbedActs& a : embedded) add_embed_acts(arena, "norm of the embedding", a, d, n);
    for (HeadActs& a : head) add_head_acts(arena, "final norm", a, d, n);
    arena.add("stream to the next stage", &sent, sends ? message_count(tokens) : 0);
    arena.add("logits of a chunk", &logits, rows * Vp);
    arena.add("logits of a chunk", &stats, tp.staging(size_t(tp.size) * rows * 3));
    arena.add("losses", &losses, part.last ? N : 0);
    arena.add("losses", &loss, 2);
    arena.add("gradient of the stream", &dx, shape.backward ? gradients * message_count(tokens) : 0);
    if (shape.by_layers && shape.backward && sums_on_the_way(d))
        arena.add("gradient of the stream", &dbias, gradients * C);
    shape.apart = shape.apart && kApart && shape.backward && part.first && part.last && d.kind.tied;
    if (shape.apart) arena.of(Purpose::Gradients).add("gradient of wte as embedding", &dtokens, Vp * C);
}

void Gpt::ready() {
    share_block_acts(acts, d, shape.backward ? shape.level : Recompute::Block,
                     hosted ? hosted.places() : SIZE_MAX);
}

// Of rows n0 .. n0 + rows. A rank's own statistics are its slice of `stats`.
ops::Classifier Gpt::classifier(const Batch& b, int n0, int rows) const {
    return {.losses = losses + n0, .logits = logits, .stats = stats + size_t(tp.index) * size_t(3 * rows),
            .targets = b.targets + n0, .N = rows, .V = d.vocab_here(), .Vp = d.Vp, .v0 = d.v0,
            .slices = tp.size, .cap = real(d.kind.softcap), .cap_kind = d.kind.softcap_kind};
}

void Gpt::begin_step() {
    apart = shape.apart;
    if (apart) ops::set_zero(dtokens, size_t(d.Vp) * d.C * sizeof(real));
}

void Gpt::end_step(real* dwte) {
    if (apart) ops::accumulate(dwte, dtokens, size_t(d.Vp) * size_t(d.C));
    apart = false;
}

// Right after the block's forward: at each level of recomputation its buffers still hold its own values.
void Gpt::add_spreads(const BlockActs& a, const Stream& out, int layer, int N) {
    const size_t stream = size_t(Slice(tp, N).mine) * size_t(d.C), rows = size_t(N);
    const struct { const floatX* values; size_t count; } measured[] = {
        {a.x, stream}, {a.ln1, stream}, {a.atty, rows * size_t(d.A)}, {a.x1, stream}, {a.ln2, stream},
        {a.act, rows * size_t(d.F)}, {out.r, stream}};
    static_assert(std::size(measured) == std::size(kSpreadsOfBlock));
    Spread* to = spreads + size_t(layer) * std::size(kSpreadsOfBlock);
    for (const auto& m : measured) ops::spread_of_stored(to++, m.values, m.count);
}

void Gpt::add_spreads(const HeadActs& a, int N) {
    const size_t stream = size_t(Slice(tp, N).mine) * size_t(d.C);
    Spread* const to = spreads + size_t(d.L) * std::size(kSpreadsOfBlock);
    ops::spread_of_stored(to, a.xf, stream);
    ops::spread_of_stored(to + 1, a.lnf, stream);
}

// ---------------------------------------------------------------------------------------------------------
// streams in the host's memory

void HostedStreams::add_to(Arena& host, const Dims& d, size_t N, size_t n, Recompute level) {
    if (blocks == 0) return;
    BlockActs received = {};
    received.receives = true;
    for (const ActRow& row : block_acts(d, N, n))
        if (row.always_own && !is_shared(row, level))
            kept.push_back({row.x, row.count * streams_of(row, received)});
    for (const Kept& k : kept) count += k.count;
    const size_t leaving = size_t(std::max(0, blocks - 2)) * size_t(micros);
    host.of(Purpose::Activations).add("activations of blocks", &memory, leaving * count);
}

void HostedStreams::before_forward(int l, int m) const {
    if (blocks) ops::await_copies(left[place(l + 1, m)]);
}

void HostedStreams::after_forward(const BlockActs& a, int l, int m) {
    if (!leaves(l)) return;
    floatX* to = memory + (size_t(l) * size_t(micros) + size_t(m)) * count;
    for (const Kept& k : kept) {
        ops::start_copy_to_host(to, a.*k.x, k.count * sizeof(floatX));
        to += k.count;
    }
    ops::mark_copies(left[place(l, m)], CopyLane::ToHost);
}

// Those of the block before come into the memory of the block behind, whose backward is over.
void HostedStreams::before_backward(std::vector<BlockActs>& acts, int l, int m) {
    if (leaves(l)) ops::await_copies(came[place(l, m)]);
    if (!leaves(l - 1)) return;
    const size_t entry = size_t(l - 1) * size_t(micros) + size_t(m);
    const floatX* from = memory + entry * count;
    for (const Kept& k : kept) {
        ops::start_copy_to_device(acts[entry].*k.x, from, k.count * sizeof(floatX));
        from += k.count;
    }
    ops::mark_copies(came[place(l - 1, m)], CopyLane::ToDevice);
}

}  // namespace PRECISION::model
