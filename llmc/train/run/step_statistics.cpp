#include "llmc/train/run/step_statistics.h"

#include <cmath>

#include "llmc/base/guard/wait.h"

namespace PRECISION::inline runs {

StepStatistics::StepStatistics(const Pipeline& p, Optimizer& o, const Axis& w, Votes& v, bool health)
    : pipeline(p), optimizer(o), world(w), votes(v), tensor_count(health ? o.health->names.size() : 0) {}

void StepStatistics::add_to(Arena& arena, Arena& host) {
    arena.add("statistics of a step", &mine, kWords);
    arena.add("statistics of a step", &all, world.staging(size_t(world.size) * kWords));
    arena.add("statistics of a step", &sums, kWords);
    host.add("tokens and statistics on their way", &sent_words, kPlaces * kWords);
    host.add("tokens and statistics on their way", &read_sums, kPlaces * kWords);
    host.add("tokens and statistics on their way", &read_times, kPlaces);
    host.add("tokens and statistics on their way", &read_state, kPlaces);
    host.add("tokens and statistics on their way", &read_squares, kPlaces * tensor_count);
}

void StepStatistics::begin() {
    began = seconds_now();
    waited = waited_for_ranks;
}

StepSums StepStatistics::sum_over_ranks(const Signals& asked, double joules) {
    CHECK(votes.sent - votes.read < kPlaces, "step statistics: {} steps have not been read", kPlaces);
    double* words = sent_words + place_of(votes.sent) * kWords;
    votes.ask(asked);
    const Votes::Words now = votes.send();
    for (const ops::CopyTicket& read : reads) ops::await_copies(read);      // of what this step writes anew
    if (!only_walks()) {
        std::copy(now.begin(), now.end(), words + kVotes);
        words[kJoules] = joules;
        words[kOwnSeconds] = seconds_now() - began - (waited_for_ranks - waited);
    }
    ops::start_copy_to_device(mine + kVotes, words + kVotes, (kWords - kVotes) * sizeof *words);
    ops::mark_copies(sent, CopyLane::ToDevice);
    pipeline.sum_losses(mine + kLoss);
    optimizer.sum_squares(mine + kSquares);
    if (tensor_count) optimizer.health->sum_squares();
    ops::await_copies(sent);
    of_all = world.all_gather(all, mine, size_t(kWords));
    ops::sum_rows(sums, of_all, world.size, kWords);
    return {.loss = sums + kLoss, .squares = sums + kSquares};
}

void StepStatistics::start_read() {
    const int place = place_of(votes.sent - 1);
    ops::start_copy_to_host(read_sums + place * kWords, sums, kWords * sizeof *sums);
    ops::start_copy_to_host(read_state + place, optimizer.state, sizeof *read_state);
    if (tensor_count)
        ops::start_copy_to_host(read_squares + size_t(place) * tensor_count, optimizer.health->squares,
                                tensor_count * sizeof *read_squares);
    ops::mark_copies(reads[place], CopyLane::ToHost, read_times + place);
}

StepResult StepStatistics::read() {
    CHECK(votes.read < votes.sent, "step statistics: no step to read");
    const int place = place_of(votes.read);
    ops::host_awaits_copies(reads[place]);
    const double* sum = read_sums + place * kWords;
    votes.receive(sum + kVotes);
    const ops::GradientState& state = read_state[place];
    StepResult result{.loss = sum[kLoss] / pipeline.step_tokens(),
                      .norm = double(state.norm),
                      .finite = state.finite != 0,
                      .joules = sum[kJoules],
                      .arrived = read_times[place]};
    if (ops::reached_by_host() && votes.read == votes.sent)
        for (int r = 0; r < world.size; r++) result.own_seconds.push_back(of_all[r * kWords + kOwnSeconds]);
    const double* squares = read_squares + size_t(place) * tensor_count;
    for (size_t i = 0; i < tensor_count; i++) result.tensor_norms.push_back(std::sqrt(squares[i]));
    return result;
}

}  // namespace PRECISION::runs
