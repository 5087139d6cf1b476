#include "llmc/train/survive/start.h"

#include <cstdlib>
#include <memory>

#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/agents/member.h"
#include "llmc/comm/votes.h"
#include "llmc/train/save/recover.h"

inline namespace survive {

// The images of all ranks of an earlier generation that have this number. needs: those that they need.
static Origin images_of_agents(const std::shared_ptr<HeldImages>& images, int64_t number,
                               std::array<int64_t, 2>& needs) {
    Manifest all;
    for (int r = 0; r < member()->plan.head.images; r++) {
        HeldImages::Head head = images->head(r, number);
        Manifest m = unpacked(head.head);
        if (r == 0) {
            all = m;
            all.state = head.state;
            needs = head.needs;
        } else {
            all.pieces.insert(all.pieces.end(), m.pieces.begin(), m.pieces.end());
        }
    }
    Origin origin = origin_of("the memory of the agents", std::move(all));
    origin.number = number;
    origin.manifest.step = origin.state().step;
    origin.bytes_of = [images, number](const SavedPiece& p, Interval bytes) {
        beat();
        return images->read(atoi(p.file.c_str()), number, p.at + bytes.begin, bytes.count);
    };
    return origin;
}

// What agents have kept in memory.
static Origin origin_in_memory(const Config& cfg, const Axis& world, const Disk& disk) {
    const auto images = std::make_shared<HeldImages>(*member());
    std::array<int64_t, 2> needs, unused;
    Origin origin = images_of_agents(images, member()->plan.head.step, needs);
    for (const int64_t number : needs)
        if (number >= 0) origin.with.push_back(images_of_agents(images, number, unused));
    run_on_rank_0(world, [&](const Heartbeat& heartbeat) {
        remove_leftovers(noticed(disk, heartbeat), cfg.run.dir);
    });
    return origin;
}

std::optional<Origin> find_start(const Config& cfg, const Axis& world) {
    if (member()) member()->claim_files(cfg.run.dir);
    if (member() && member()->restores()) return origin_in_memory(cfg, world, posix_disk());
    return find_origin(cfg, world);
}

}  // namespace survive
