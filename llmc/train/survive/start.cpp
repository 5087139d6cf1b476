#include "llmc/train/survive/start.h"

#include <cstdlib>
#include <memory>

#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/agents/member.h"
#include "llmc/comm/votes.h"
#include "llmc/train/save/recover.h"

inline namespace survive {

// What agents have kept in memory: the images of all ranks of an earlier generation.
static Origin origin_in_memory(const Config& cfg, const Axis& world, const Disk& disk) {
    const auto images = std::make_shared<HeldImages>(*member());
    Manifest all;
    std::string state;
    for (int r = 0; r < member()->plan.head.images; r++) {
        HeldImages::Head head = images->head(r);
        Manifest m = unpacked(head.head);
        if (r == 0) {
            all = m;
            state = head.state;
        } else {
            all.pieces.insert(all.pieces.end(), m.pieces.begin(), m.pieces.end());
        }
    }
    all.step = member()->plan.head.step;
    all.state = state;
    run_on_rank_0(world, [&](const Heartbeat& heartbeat) {
        remove_leftovers(noticed(disk, heartbeat), cfg.run.dir);
    });
    Origin origin = origin_of("the memory of the agents", std::move(all));
    origin.bytes_of = [images](const SavedPiece& p, Interval bytes) {
        beat();
        return images->read(atoi(p.file.c_str()), p.at + bytes.begin, bytes.count);
    };
    return origin;
}

std::optional<Origin> find_start(const Config& cfg, const Axis& world) {
    if (member() && member()->restores()) return origin_in_memory(cfg, world, posix_disk());
    return find_origin(cfg, world);
}

}  // namespace survive
