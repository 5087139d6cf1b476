#include "llmc/train/pipeline.h"

#include <algorithm>
#include <cmath>

#include "llmc/train/signals.h"
#include "llmc/train/votes.h"

namespace PRECISION {

Pipeline::Pipeline(const Config& cfg, const Mesh& m, const Stage& s, Gpt& g, Zero& z)
    : gpt(g), zero(z), mesh(m), stage(s), batch_rows(cfg.train.batch_tokens / cfg.model.context) {}

void Pipeline::add_to(Arena& arena) {
    const size_t stream = gpt.stream_count(gpt.shape.B * gpt.shape.T);
    arena.add("gradients to be sent", &outbox, outbox_slots() * stream);
}

// The blocks here in the order in which the actions ask for their weights.
std::vector<int> Pipeline::block_order(const std::vector<Action>& actions) const {
    std::vector<int> order;
    for (const Action& a : actions) {
        const Chunk chunk = gpt.part.chunks[size_t(a.chunk)];
        for (int l = chunk.begin; a.kind == Action::Forward && l < chunk.end; l++) order.push_back(l);
        for (int l = chunk.end - 1; a.kind == Action::Backward && l >= chunk.begin; l--) order.push_back(l);
    }
    return order;
}

// ---------------------------------------------------------------------------------------------------------
// messages

void Pipeline::send(const Action& a) {
    const floatX* stream = gpt.output();
    if (a.way == Action::Gradient) {
        stream = gpt.gradient();
        if (outbox_slots()) {
            CHECK(!waiting.empty() && waiting.front().chunk == a.chunk && waiting.front().micro == a.micro,
                  "pipeline: the gradient of chunk %d, micro-batch %d is not next", a.chunk, a.micro);
            const size_t oldest = (posted - waiting.size()) % outbox_slots();
            stream = outbox + oldest * gpt.stream_count(gpt.shape.B * gpt.shape.T);
            waiting.pop_front();
        }
    }
    mesh.pp.send(stream, stream_of(a), a.peer);
}

void Pipeline::receive(const Action& a) {
    floatX* stream = a.way == Action::Gradient ? gpt.gradient() : gpt.input(a.chunk, slot(a));
    mesh.pp.recv(stream, stream_of(a), a.peer);
}

void Pipeline::backward(const Action& a, real dloss) {
    zero.begin_backward(a.micro == stage.shape.micros - 1);
    gpt.backward(zero, of(batch(a.micro)), dloss, a.chunk, slot(a));
    if (gpt.part.chunks[size_t(a.chunk)].embeds || !outbox_slots()) return;
    CHECK(waiting.size() < outbox_slots(), "pipeline: %zu gradients wait", waiting.size());
    floatX* to = outbox + posted++ % outbox_slots() * gpt.stream_count(gpt.shape.B * gpt.shape.T);
    ops::copy(to, gpt.gradient(), stream_of(a));
    waiting.push_back({a.chunk, a.micro});
}

// ---------------------------------------------------------------------------------------------------------
// a step

double Pipeline::run(Loader& data) {
    const double tokens = double(batch_rows) * gpt.shape.T;
    batches.resize(size_t(stage.slots[0]));
    gpt.clear_loss();
    gpt.begin_step();
    zero.begin_step(block_order(stage.actions));
    zero.clear_grads();
    int loaded = 0;
    for (const Action& a : stage.actions) {
        // the first chunk here meets a micro-batch first and leaves it last
        if (a.chunk == 0 && a.micro == loaded) {
            batch(a.micro) = data.next();
            loaded++;
        }
        switch (a.kind) {
            case Action::Forward: gpt.forward(zero, of(batch(a.micro)), a.chunk, slot(a)); break;
            case Action::Backward: backward(a, real(1 / tokens)); break;
            case Action::Send: send(a); break;
            case Action::Recv: receive(a); break;
        }
    }
    if (gpt.part.first && gpt.part.last) gpt.end_step(zero.embed_grads().wte);
    zero.finish();
    return counts() ? *gpt.loss / tokens : 0;
}

// ---------------------------------------------------------------------------------------------------------
// an evaluation

// Micro-batches of B rows are dealt to the dp ranks in turn, `first` and the dp - 1 after it in a first
// round. A rank whose turn is past the last row computes a row all the same: its peers need it where weights
// are gathered from all ranks.
void Pipeline::evaluate_rounds(const Dataset& set, uint64_t first, uint64_t rows, int rounds) {
    const uint64_t B = uint64_t(gpt.shape.B), dp = uint64_t(mesh.dp.size);
    const std::vector<Action> actions = stage.forwards(rounds);
    const auto row_of = [&](int micro) {
        return (first + uint64_t(micro) * dp + uint64_t(mesh.dp.index)) * B;
    };
    batches.resize(size_t(rounds));
    for (int m = 0; m < rounds; m++)
        if (row_of(m) < rows) load_batch(batch(m), set, row_of(m), int(std::min(B, rows - row_of(m))));
        else load_batch(batch(m), set, 0, 1);
    zero.begin_step(block_order(actions));
    for (const Action& a : actions) switch (a.kind) {
        case Action::Forward:
            gpt.forward(zero, of(batch(a.micro)), a.chunk, slot(a));
            if (gpt.part.chunks[size_t(a.chunk)].ends && row_of(a.micro) < rows)
                gpt.head_loss(zero, of(batch(a.micro)), slot(a));
            break;
        case Action::Send: send(a); break;
        case Action::Recv: receive(a); break;
        case Action::Backward: CHECK(false, "pipeline: a backward in an evaluation");
    }
}

std::optional<Pipeline::Evaluation> Pipeline::evaluate(const Dataset& set, int64_t count,
                                                       std::span<const uint16_t> bytes) {
    const uint64_t all = set.rows(), B = uint64_t(gpt.shape.B), dp = uint64_t(mesh.dp.size);
    const uint64_t rows = count ? std::min(all, uint64_t(count * batch_rows)) : all;
    const uint64_t micros = (rows + B - 1) / B;
    // as many rounds at once as fill the pipeline: one where there is one stage
    const uint64_t most = uint64_t(mesh.pp.size) * uint64_t(mesh.pp.size);
    gpt.clear_loss();
    int64_t target_bytes = 0;
    for (uint64_t first = 0; first < micros; first += most * dp) {
        if (any_of(mesh.world, stop_asked())) return std::nullopt;
        const int rounds = int(std::min(most, (micros - first + dp - 1) / dp));
        evaluate_rounds(set, first, rows, rounds);
        for (int m = 0; m < rounds; m++)
            if ((first + uint64_t(m) * dp + uint64_t(mesh.dp.index)) * B < rows)
                for (int32_t id : batch(m).targets)
                    target_bytes += size_t(id) < bytes.size() ? bytes[size_t(id)] : 0;
    }
    const auto [sum, length] =
        sum_over<2>(mesh.world, {counts() ? *gpt.loss : 0, counts() ? double(target_bytes) : 0});
    Evaluation e{.loss = sum / (double(rows) * gpt.shape.T), .bits_per_byte = {}};
    if (length > 0) e.bits_per_byte = sum / std::log(2.0) / length;
    return e;
}

}  // namespace PRECISION
