#include "llmc/comm/launch/elastic.h"

#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/wait.h"
#include "llmc/comm/agents/member.h"
#include "llmc/comm/launch/run_rank.h"
#include "llmc/comm/transport/tcp.h"

inline namespace launching {

// A generation of a job with run.elastic. Throws Lost.
static int run_generation(Config cfg, const RankBody& body) {
    Membership& m = *member();
    const int world = m.plan.head.world, rank = context.rank = m.seated.rank;
    join_progress(rank, world);
    const TcpDoor door = tcp_listen_at(word_text(m.seated.address), word_text(m.seated.secret));
    cfg.parallel.transport = TransportKind::Tcp;
    RankMesh ranks(cfg.parallel, world, rank);
    const std::string own(reinterpret_cast<const char*>(&door.endpoint), sizeof door.endpoint);
    std::vector<TcpEndpoint> endpoints;
    for (const std::string& text : m.exchange_doors(own)) {
        CHECK_INPUT(text.size() == sizeof(TcpEndpoint), "a rank is of another build");
        memcpy(&endpoints.emplace_back(), text.data(), text.size());
    }
    tcp_begin(door, ranks, mesh_shape(cfg.parallel, world), endpoints);
    const int code = run_rank(cfg, ranks.mesh, placements_over(ranks.mesh), body);
    ranks.mesh.world.barrier();
    wait_for_the_end();
    m.finish(code);
    tcp_end();
    return code;
}

// A rank whose generation is over joins the next: everything is built anew, no object in flight is repaired.
int run_elastic(const Config& cfg, const RankBody& body) {
    const std::function<void()> look = look_for_stop;
    in_wait = &look;
    for (;;) {
        member()->await_plan();
        try {
            const int code = run_generation(cfg, body);
            in_wait = nullptr;
            return code;
        } catch (const Lost&) {
            tcp_abandon();
            context.undo = nullptr;
        }
    }
}

}  // namespace launching
