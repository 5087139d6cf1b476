#include "llmc/train/step/pipeline.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/guard/signals.h"
#include "llmc/comm/votes.h"
#include "llmc/ops/timed.h"

namespace PRECISION::inline step {

Pipeline::Pipeline(const Config& cfg, const Mesh& m, const Stage& s, Gpt& g, Zero& z)
    : gpt(g), zero(z), mesh(m), stage(s), batch_rows(cfg.train.batch_tokens / cfg.model.context),
      sends(size_t(send_buffers(s.shape))) {}

void Pipeline::add_to(ArenaOf arena, Arena& host) {
    arena.add("streams to be sent", &outbox, sends.size() * largest_message());
    arena.add("tokens", &tokens, places() * ids_of_batch());
    host.add("tokens and statistics on their way", &outgoing, kBuffered * ids_of_batch());
}

std::vector<int> block_order(const Part& part, const std::vector<Action>& actions) {
    std::vector<int> order;
    for (const Action& a : actions) {
        const Chunk chunk = part.chunks[size_t(a.chunk)];
        for (int l = chunk.begin; a.kind == Action::Forward && l < chunk.end; l++) order.push_back(l);
        for (int l = chunk.end - 1; a.kind == Action::Backward && l >= chunk.begin; l--) order.push_back(l);
    }
    return order;
}

// The tables that bring() copies: tokens, targets, positions of parts of rows, two of documents in whole rows
size_t Pipeline::ids_in_tables(int B) const {
    const size_t here = size_t(B) * size_t(gpt.shape.here()), whole = size_t(B) * size_t(gpt.shape.T);
    return (part().size > 1 ? 3 : 2) * here + (gpt.d.kind.documents ? 2 : 0) * whole;
}

// Starts to copy the tables of a micro-batch to a buffer on the device. The host waits if kBuffered
// micro-batches ahead of the device.
const ops::CopyTicket& Pipeline::bring(const TokenBatch& b, size_t place) {
    const size_t buffer = brought++ % kBuffered;
    ops::CopyTicket& ticket = on_their_way[buffer];
    ops::host_awaits_copies(ticket);
    int32_t* from = outgoing + buffer * ids_of_batch();
    int32_t* to = from;
    CHECK(only_walks() || b.tokens.size() == ids_of(b), "a micro-batch of {} tokens, not {}", b.tokens.size(),
          ids_of(b));
    if (!only_walks())
        for (const auto* table : {&b.tokens, &b.targets, &b.own_positions, &b.positions, &b.ends})
            to = std::copy(table->begin(), table->end(), to);
    ops::start_copy_to_device(tokens + place * ids_of_batch(), from, ids_in_tables(b.B) * sizeof *tokens);
    ops::mark_copies(ticket, CopyLane::ToDevice);
    return ticket;
}

Batch Pipeline::in_place(const TokenBatch& b, size_t place) const {
    const int32_t* inputs = tokens + place * ids_of_batch();
    Batch batch = {.tokens = inputs, .targets = inputs + ids_of(b), .B = b.B, .T = gpt.shape.here()};
    const int32_t* next = inputs + 2 * ids_of(b);
    if (gpt.d.kind.documents) {
        const int32_t* const whole = part().size > 1 ? next + ids_of(b) : next;
        batch.documents = {whole, whole + size_t(b.B) * size_t(gpt.shape.T)};
    }
    batch.positions = part().size > 1 ? next : batch.documents.positions;
    return batch;
}

// In an evaluation: brought for the next call.
Batch Pipeline::brought_now(const TokenBatch& b) {
    ops::await_copies(bring(b, 0));
    return in_place(b, 0);
}

void Pipeline::sum_losses(double* out) const {
    if (counts()) ops::copy_on_device(out, gpt.loss, sizeof *out);
    else ops::set_zero(out, sizeof *out);
}

double Pipeline::summed_loss() const {
    double sum = 0;
    if (counts()) ops::copy_to_host(&sum, gpt.loss, sizeof sum);
    return sum;
}

// ---------------------------------------------------------------------------------------------------------
// messages

// From a copy, so that the next work may start.
void Pipeline::send(const Action& a) {
    const size_t buffer = sent++ % sends.size(), count = message_of(a);
    floatX* copy = outbox + buffer * largest_message();
    mesh.pp.wait(sends[buffer]);
    ops::copy(copy, a.payload == Action::Gradient ? gpt.gradient() : gpt.output(), count);
    sends[buffer] = mesh.pp.start_send(copy, count, a.peer);
}

// Oldest first.
void Pipeline::finish_sends() {
    for (size_t i = 0; i < sends.size(); i++) mesh.pp.wait(sends[(sent + i) % sends.size()]);
}

void Pipeline::receive(const Action& a) {
    floatX* message = a.payload == Action::Gradient ? gpt.gradient() : gpt.input(a.chunk, buffer(a));
    mesh.pp.recv(message, message_of(a), a.peer);
}

// ---------------------------------------------------------------------------------------------------------
// a step

// The next micro-batch is on its way to the device while one is worked on.
void Pipeline::load(Loader* data, int micro) {
    const auto fetch = [&](int m) {
        const Timed waits(kLoaderWait, Timeline::Kind::Wait);
        if (data) batch(m) = data->next();
        else batch(m) = {};
        if (!data) batch(m).B = gpt.shape.B;
        bring(batch(m), place(m));
    };
    if (micro == 0) fetch(0);
    ops::await_copies(on_their_way[(brought - 1) % kBuffered]);
    if (micro + 1 < stage.shape.micros) fetch(micro + 1);
}

// A micro-batch that does not count has no weight in gradients and losses, and no statistics.
void Pipeline::compute(const Action& a, const Batch& b) {
    const bool counts = batch(a.micro).counts;
    Spread* const spreads = gpt.spreads;
    if (!counts) gpt.spreads = nullptr;
    if (a.kind == Action::Forward) gpt.forward(zero, b, a.chunk, buffer(a));
    else if (a.kind == Action::Weight) gpt.weight_half(zero, b, a.chunk, buffer(a));
    else gpt.backward(zero, b, counts ? real(1 / step_tokens()) : real(0), a.chunk, buffer(a));
    gpt.spreads = spreads;
}

void Pipeline::run(Loader* data) {
    if (data && before_run) before_run();
    zero.shards.flip_state_if_asked();
    batches.resize(places());
    gpt.clear_loss();
    gpt.begin_step();
    zero.begin_step(block_order(gpt.part, stage.actions), BlockForm::Codes);
    zero.clear_grads();
    int loaded = 0;
    for (const Action& a : stage.actions) {
        const Walking at(&Walk::micro, a.micro), in(&Walk::action, int(&a - stage.actions.data()));
        // the first chunk here meets a micro-batch first and leaves it last
        if (a.chunk == 0 && a.micro == loaded) load(data, loaded++);
        switch (a.kind) {
            case Action::Forward: compute(a, of(a.micro)); break;
            case Action::Backward:
            case Action::Weight:
                zero.begin_backward(a.micro == stage.shape.micros - 1);
                compute(a, of(a.micro));
                break;
            case Action::Send: send(a); break;
            case Action::Recv: receive(a); break;
        }
    }
    finish_sends();
    if (gpt.part.first && gpt.part.last) gpt.end_step(zero.embed_grads().wte);
    zero.finish();
}

void Pipeline::rehearse(const Dataset& set, uint64_t sample, int dp) {
    const PipelineShape& s = stage.shape;
    const int micros = s.chunks > 1 ? s.stages : 1;         // by layers: one stage
    const auto actions =
        pipeline_schedule({s.stages, s.chunks, micros, s.schedule, s.layers}, stage.index);
    batches.resize(size_t(micros));
    for (int m = 0; m < micros; m++) deal(dp).load(batch(m), set, sample, m);
    gpt.clear_loss();
    gpt.begin_step();
    zero.begin_step(block_order(gpt.part, actions), BlockForm::Codes);
    zero.clear_grads();
    zero.rehearses = true;
    for (const Action& a : actions) switch (a.kind) {
        case Action::Forward:
        case Action::Backward:
        case Action::Weight: compute(a, brought_now(batch(a.micro))); break;
        case Action::Send: send(a); break;
        case Action::Recv: receive(a); break;
    }
    finish_sends();
    zero.rehearses = false;
}

// ---------------------------------------------------------------------------------------------------------
// an evaluation

// The bytes of the targets' text. Losses of targets without text are left out.
int64_t Pipeline::text_bytes(const TokenBatch& b, std::span<const uint16_t> bytes) {
    int64_t sum = 0;
    for (size_t i = 0; i < b.targets.size() && !bytes.empty(); i++) {
        const size_t id = size_t(b.targets[i]);
        const uint16_t length = id < bytes.size() ? bytes[id] : 0;
        if (length == 0) gpt.leave_out(i);
        sum += length;
    }
    return sum;
}

// Micro-batches of B rows are dealt round-robin to the replicas, beginning with `first`. A rank without a row
// computes a row anyway: its peers gather its weights. Returns the bytes of the targets' text that this rank
// counts.
int64_t Pipeline::evaluate_rounds(const Dataset* set, uint64_t first, uint64_t rows, int rounds,
                                  std::span<const uint16_t> bytes) {
    int64_t text = 0;
    const uint64_t B = uint64_t(gpt.shape.B), dp = uint64_t(mesh.dp.size);
    const std::vector<Action> actions = stage.forwards(rounds);
    const auto row_of = [&](int micro) {
        return (first + uint64_t(micro) * dp + uint64_t(mesh.dp.index)) * B;
    };
    batches.resize(size_t(rounds));
    for (int m = 0; m < rounds; m++) {
        const bool counts = row_of(m) < rows;
        batch(m).B = counts ? int(std::min(B, rows - row_of(m))) : 1;
        if (set) load_batch(batch(m), *set, counts ? row_of(m) : 0, batch(m).B, part());
    }
    zero.begin_step(block_order(gpt.part, actions), BlockForm::Codes);
    for (const Action& a : actions) switch (a.kind) {
        case Action::Forward:
            gpt.forward(zero, brought_now(batch(a.micro)), a.chunk, buffer(a));
            if (!gpt.part.chunks[size_t(a.chunk)].ends || row_of(a.micro) >= rows) break;
            gpt.head_loss(zero, brought_now(batch(a.micro)), buffer(a));
            if (counts() && set) text += text_bytes(batch(a.micro), bytes);
            break;
        case Action::Send: send(a); break;
        case Action::Recv: receive(a); break;
        case Action::Backward:
        case Action::Weight: CHECK(false, "pipeline: a backward in an evaluation");
    }
    finish_sends();
    return text;
}

uint64_t Pipeline::rows_of_evaluation(const Dataset& set, int64_t count) const {
    EvalConfig eval;
    eval.batches = count;
    return eval.rows_of(set.rows(), uint64_t(batch_rows), uint64_t(gpt.shape.T));
}

// Rounds between the first and the last are like the first.
void Pipeline::walk_evaluation(uint64_t rows) {
    const uint64_t at_once = rounds_at_once() * uint64_t(mesh.dp.size) * uint64_t(gpt.shape.B);
    evaluate(nullptr, rows > at_once ? at_once + (rows - 1) % at_once + 1 : rows, {});
}

std::optional<Pipeline::Evaluation> Pipeline::evaluate(const Dataset* set, uint64_t rows,
                                                       std::span<const uint16_t> bytes) {
    const uint64_t B = uint64_t(gpt.shape.B), dp = uint64_t(mesh.dp.size);
    const uint64_t micros = (rows + B - 1) / B;
    const uint64_t most = rounds_at_once();
    gpt.clear_loss();
    int64_t target_bytes = 0;
    for (uint64_t first = 0; first < micros; first += most * dp) {
        if (any_of(mesh.world, stop_asked())) return std::nullopt;
        const int rounds = int(std::min(most, (micros - first + dp - 1) / dp));
        target_bytes += evaluate_rounds(set, first, rows, rounds, bytes);
    }
    double left_out = 0;
    if (counts()) ops::copy_to_host(&left_out, gpt.loss + 1, sizeof left_out);
    const auto [sum, without, length] =
        sum_over<3>(mesh.world, {summed_loss(), left_out, double(target_bytes)});
    Evaluation e{.loss = sum / (double(rows) * gpt.shape.T), .bits_per_byte = {}};
    if (length > 0) e.bits_per_byte = (sum - without) / std::log(2.0) / length;
    return e;
}

}  // namespace PRECISION::step
