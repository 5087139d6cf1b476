#include "llmc/train/run/integrity.h"

#include <algorithm>
#include <array>

#include "llmc/base/guard/generation.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/agents/member.h"
#include "llmc/train/replicas/state_hashes.h"

namespace PRECISION::inline runs {

static constexpr const char* kComparesState = "run.check_every";

Integrity::Integrity(const Config& c, Model& m, const Dataset& set, Checkpoint& saves, StepLog& log)
    : cfg(c.run), model(m), train(set), checkpoint(saves), steps(log), state(log.state),
      replays(m.pipeline) {
    if (!model.optimizer) return;
    if (cfg.replay_every) model.pipeline.before_run = [this] { replay(); };
    if (cfg.check_every) checkpoint.before_save = [this] { compare_state(); };
    if (!cfg.sniff) return;
    phase(Phase::Load, state.step);
    replays.expect_twice(train, uint64_t(state.sample));
    if (const Suspects s = replays.compare(); s.any()) end(s, replays.name_of(s), "run.sniff");
}

Integrity::~Integrity() {
    model.pipeline.before_run = nullptr;
    checkpoint.before_save = nullptr;
}

void Integrity::replay() {
    if (!due(cfg.replay_every)) return;
    const int64_t turn = (state.step + 1) / cfg.replay_every % model.mesh.dp.size;
    replays.expect(train, uint64_t(state.sample), int(turn));
}

void Integrity::check() {
    if (due(cfg.replay_every))
        if (const Suspects s = replays.compare(); s.any()) end(s, replays.name_of(s), "run.replay_every");
    if (due(cfg.check_every)) compare_state();
}

void Integrity::compare_state() {
    const Axis& world = model.mesh.world;
    const std::vector<CopyHash> mine = hashes_of_state(model.shards);
    std::vector<CopyHash> all(size_t(world.size) * mine.size());
    if (world.size == 1) return;
    world.all_gather(&all[0].group, &mine[0].group, 2 * mine.size());
    if (const Suspects s = compare(all, mine.size()); s.any())
        end(s, name_of_copies(model.shards, s.kind), kComparesState);
    if (member()) member()->note_passed();
}

// ---------------------------------------------------------------------------------------------------------
// the end

namespace {
struct Place { std::array<char, 80> host = {}, device = {}; };
}  // namespace

static void copy_text(std::array<char, 80>& to, const std::string& text) {
    std::copy_n(text.begin(), std::min(text.size(), to.size() - 1), to.begin());
}

static std::vector<Place> places_of_ranks(const Axis& world) {
    Place mine;
    copy_text(mine.host, host_name());
    const std::string bus = ops::device_bus_id();
    copy_text(mine.device, ops::device_name() + (bus.empty() ? "" : " " + bus));
    std::vector<Place> all(size_t(world.size), mine);
    if (world.size > 1) world.all_gather(all[0].host.data(), mine.host.data(), sizeof mine);
    return all;
}

// "rank 2 on node7 (NVIDIA H200 0000:17:00.0), rank 3 on ..."
static std::string text_of_ranks(const std::vector<int>& ranks, const std::vector<Place>& places) {
    std::string text;
    for (const int rank : ranks) {
        const Place& at = places[size_t(rank)];
        text += fmt::format("{}rank {} on {} ({})", text.empty() ? "" : ", ", rank, at.host.data(),
                            at.device.data());
    }
    return text;
}

// The agents go on without the host at fault, or end the job. Images behind the last comparison that passed
// may have the wrong bits as well; where a rank computes wrong numbers, the state before the step has not.
void Integrity::put_aside(const Suspects& s, const std::string& ranks, const std::string& what,
                          const char* found_by) {
    const bool of_state = found_by == kComparesState;
    const char* const differ = s.sure ? "other bits than its replicas" : "bits differ, and any may be right";
    if (model.mesh.rank == 0)
        warning("silent data corruption, found after step {} by {}: {} of {}: {}{}", state.step, found_by,
                what, ranks, differ, s.sure && of_state ? "; training goes back to where they agreed" : "");
    checkpoint.finish();                    // of replicas that agreed
    model.mesh.world.barrier();
    for (const int rank : s.ranks)
        member()->report_corrupt(rank, s.sure, of_state, fmt::format("{}, by {}", what, found_by));
    leave_generation();
}

void Integrity::end(const Suspects& s, const std::string& what, const char* found_by) {
    steps.write();
    const std::vector<Place> places = places_of_ranks(model.mesh.world);
    std::string hosts;
    for (const int rank : s.ranks) {
        const std::string host = places[size_t(rank)].host.data();
        if (s.sure && !member()) steps.log.corrupt(state.step, rank, host, what);
        else if (hosts.find(host) == hosts.npos) hosts += (hosts.empty() ? "" : ", ") + host;
    }
    if (!s.sure) steps.log.corrupt(state.step, -1, hosts, what);
    if (member()) put_aside(s, text_of_ranks(s.ranks, places), what, found_by);
    checkpoint.finish();                    // of replicas that agreed
    model.mesh.world.barrier();             // the row is there before any rank ends the job
    const std::string from = checkpoint.newest.empty() ? "its beginning" : for_terminal(checkpoint.newest);
    const char* const differ = s.sure ? "other bits than its replicas" : "bits differ, and any may be right";
    fatal(kExitRestart, __FILE__, __LINE__, "silent data corruption, found after step {} by {}: {} of {}: "
          "{}. Nothing of it is saved. Leave out the host at fault and start again: the run goes on from {}",
          state.step, found_by, what, text_of_ranks(s.ranks, places), differ, from);
}

}  // namespace PRECISION::runs
