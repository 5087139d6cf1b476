#include "llmc/train/step/schedule.h"

#include <algorithm>

#include "llmc/base/check.h"

inline namespace step {

namespace {

// Forward i of a stage: micro-batches in groups of `stages`, a group through all chunks before the next.
Action forward(const PipelineShape& p, int i) {
    const int group = i / (p.stages * p.chunks), first = group * p.stages;
    const int size = std::min(p.stages, p.micros - first), within = i - first * p.chunks;
    return {Action::Forward, within / size, first + within % size};
}

// Backward i: the same, from the last chunk to the first.
Action backward(const PipelineShape& p, int i) {
    const Action f = forward(p, i);
    return {Action::Backward, p.chunks - 1 - f.chunk, f.micro};
}

// A work between its messages. The chunks of all stages have numbers: forward goes up, backward down.
void add_work(std::vector<Action>& list, const PipelineShape& p, int stage, const Action& work) {
    const bool down = work.kind == Action::Backward;
    const int number = work.chunk * p.stages + stage, last = p.stages * p.chunks - 1;
    const int from = down ? number + 1 : number - 1, to = down ? number - 1 : number + 1;
    const auto payload = down ? Action::Gradient : Action::Activation;
    const auto elsewhere = [&](int other) { return p.stages > 1 && other >= 0 && other <= last; };
    if (elsewhere(from)) list.push_back({Action::Recv, work.chunk, work.micro, payload, from % p.stages});
    list.push_back(work);
    if (elsewhere(to)) list.push_back({Action::Send, work.chunk, work.micro, payload, to % p.stages});
}

// `ahead` forwards, then forward and backward alternate, then the remaining backwards.
std::vector<Action> one_and_one(const PipelineShape& p, int stage, int ahead) {
    const int all = p.micros * p.chunks;
    std::vector<Action> list;
    for (int i = 0; i < std::min(ahead, all); i++) add_work(list, p, stage, forward(p, i));
    for (int i = 0; i < all; i++) {
        if (i + ahead < all) add_work(list, p, stage, forward(p, i + ahead));
        add_work(list, p, stage, backward(p, i));
    }
    return list;
}

}  // namespace

std::vector<Action> one_f_one_b(const PipelineShape& p, int stage) {
    CHECK(p.chunks == 1, "1f1b: {} chunks a stage", p.chunks);
    return one_and_one(p, stage, p.stages - 1 - stage);
}

std::vector<Action> interleaved(const PipelineShape& p, int stage) {
    CHECK(p.stages > 1 && p.micros % p.stages == 0, "interleaved: {} micro-batches on {} stages", p.micros,
          p.stages);
    return one_and_one(p, stage, 2 * (p.stages - 1 - stage) + (p.chunks - 1) * p.stages);
}

std::vector<Action> zero_bubble(const PipelineShape& p, int stage) {
    CHECK(p.chunks == 1, "zb: {} chunks a stage", p.chunks);
    const int ahead = p.stages - 1 - stage, late = stage;
    std::vector<Action> list;
    for (int i = 0; i < std::min(ahead, p.micros); i++) add_work(list, p, stage, forward(p, i));
    for (int i = 0; i < p.micros + late; i++) {
        if (i + ahead < p.micros) add_work(list, p, stage, forward(p, i + ahead));
        if (i < p.micros) add_work(list, p, stage, backward(p, i));
        if (i >= late) list.push_back({Action::Weight, 0, i - late});
    }
    return list;
}

// The chunk that ends goes on with backward at once: a micro-batch's logits and losses are one call.
std::vector<Action> by_layers(const PipelineShape& p) {
    CHECK(p.stages == 1, "layers: {} stages", p.stages);
    std::vector<Action> list = forward_schedule({.stages = 1, .chunks = p.chunks - 1, .micros = p.micros,
                                                 .layers = true}, 0);
    for (int m = 0; m < p.micros; m++) {
        list.push_back({Action::Forward, p.chunks - 1, m});
        list.push_back({Action::Backward, p.chunks - 1, m});
    }
    for (int c = p.chunks - 2; c >= 0; c--)
        for (int m = 0; m < p.micros; m++) list.push_back({Action::Backward, c, m});
    return list;
}

std::vector<Action> pipeline_schedule(const PipelineShape& p, int stage) {
    if (p.layers) return by_layers(p);
    if (p.stages == 1) return one_f_one_b(p, stage);
    switch (p.schedule) {
        case PipelineSchedule::OneFOneB: return one_f_one_b(p, stage);
        case PipelineSchedule::Interleaved: return interleaved(p, stage);
        case PipelineSchedule::ZeroBubble: return zero_bubble(p, stage);
    }
    return {};
}

std::vector<Action> forward_schedule(const PipelineShape& p, int stage) {
    std::vector<Action> list;
    for (int i = 0; i < p.micros * p.chunks; i++)
        if (p.layers) list.push_back({Action::Forward, i / p.micros, i % p.micros});
        else add_work(list, p, stage, forward(p, i));
    return list;
}

int live_micros(const std::vector<Action>& list, int chunk) {
    auto last = Action::Forward;        // the kinds are in the order of work
    for (const Action& a : list)
        if (a.kind <= Action::Weight) last = std::max(last, a.kind);
    int live = 0, most = 0;
    for (const Action& a : list) {      // an arrival comes just before its forward
        if (a.chunk != chunk) continue;
        if (a.kind == Action::Forward) most = std::max(most, ++live);
        if (a.kind == last) live--;
    }
    return most;
}

// ---------------------------------------------------------------------------------------------------------
// this rank's stage

int micros_of(const Config& cfg, const Mesh& mesh, int micro_batch) {
    check_batch(cfg, mesh.dp.size, micro_batch);
    return int(micros_of_step(cfg, mesh.dp.size, micro_batch));
}

Stage make_stage(const Config& cfg, const Mesh& mesh, int micro_batch) {
    const bool trains = cfg.train.steps > 0, layers = offloads_weights(cfg.memory.offload);
    Stage s{.shape = {.stages = mesh.pp.size, .chunks = mesh.pp.size > 1 ? cfg.parallel.virtual_stages : 1,
                      .micros = trains ? micros_of(cfg, mesh, micro_batch) : 0,
                      .schedule = cfg.parallel.schedule, .layers = layers},
            .index = mesh.pp.index, .actions = {}, .buffers = {}};
    if (layers) s.shape.chunks = cfg.model.layers;
    if (trains) s.actions = pipeline_schedule(s.shape, s.index);
    // by layers a chunk's stream is there from the forward of the chunk before
    for (int c = 0; c < s.shape.chunks; c++)
        s.buffers.push_back(std::max(1, layers ? s.shape.micros : live_micros(s.actions, c)));
    return s;
}

Part make_part(int L, int stage, int stages, int chunks) {
    const int all = stages * chunks;
    CHECK(all <= L, "{} stages of {} chunks for {} blocks", stages, chunks, L);
    Part part{.layers = {}, .chunks = {}, .first = stage == 0, .last = stage == stages - 1};
    for (int c = 0; c < chunks; c++) {
        const int number = c * stages + stage;
        const Interval blocks = part_of({0, size_t(L)}, size_t(number), size_t(all));
        const int begin = int(part.layers.size());
        for (size_t l = blocks.begin; l < blocks.end(); l++) part.layers.push_back(int(l));
        part.chunks.push_back({.begin = begin, .end = int(part.layers.size()),
                               .embeds = number == 0, .ends = number == all - 1});
    }
    return part;
}

}  // namespace step
