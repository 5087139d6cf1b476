#include "llmc/comm/launch/elastic.h"

#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/version.h"
#include "llmc/comm/agents/member.h"
#include "llmc/comm/launch/gpu_rank.h"
#include "llmc/comm/launch/meeting.h"
#include "llmc/comm/launch/run_rank.h"
#include "llmc/comm/transport/tcp.h"

inline namespace launching {

// What every rank of the generation says. Throws Lost where the generation ends before all have.
template <class T> static std::vector<T> greet_generation(const T& own) {
    std::vector<T> all;
    const std::string said(reinterpret_cast<const char*>(&own), sizeof own);
    for (const std::string& text : member()->exchange_doors(said)) {
        CHECK_INPUT(text.size() == sizeof own, "a rank is of another build");
        memcpy(&all.emplace_back(), text.data(), text.size());
    }
    return all;
}

static int run_generation_over_tcp(const Config& cfg, const RankBody& body) {
    Membership& m = *member();
    const int world = m.plan.head.world, rank = m.seated.rank;
    const TcpDoor door = tcp_listen_at(word_text(m.seated.address), word_text(m.seated.secret));
    RankMesh ranks(cfg.parallel, world, rank);
    tcp_begin(door, ranks, mesh_shape(cfg.parallel, world), greet_generation(door.endpoint));
    const int code = run_rank(cfg, ranks.mesh, placements_over(ranks.mesh), body);
    ranks.mesh.world.barrier();
    wait_for_the_end();
    m.finish(code);
    tcp_end();
    return code;
}

// The id of NCCL is new in each generation: who holds an old one waits for ranks that have left.
static int run_generation_over_nccl(const Config& cfg, const RankBody& body) {
    Membership& m = *member();
    const std::vector<GpuGreeting> all = greet_generation(own_greeting(m.seated.rank));
    check_generation(all);
    RankMesh ranks(cfg.parallel, m.plan.head.world, m.seated.rank, true);
    const int code = run_gpu_rank(cfg, ranks, placements_of(all), all[0].id, body);
    wait_for_the_end();
    m.finish(code);
    return code;
}

// A generation of a job with run.elastic. Throws Lost.
static int run_generation(Config cfg, const RankBody& body) {
    const Membership& m = *member();
    context.rank = m.seated.rank;
    join_progress(m.seated.rank, m.plan.head.world);
    const bool cpu = std::string_view(built_device) == "cpu", over_nccl = goes_over_nccl(cfg.parallel);
    CHECK_INPUT(cpu || over_nccl, "run.elastic = true: ranks on GPUs come and go over NCCL, which this build "
                "does not have (make says why)");
    cfg.parallel.transport = over_nccl ? TransportKind::Nccl : TransportKind::Tcp;
    return over_nccl ? run_generation_over_nccl(cfg, body) : run_generation_over_tcp(cfg, body);
}

// A rank whose generation is over joins the next: everything is built anew, no object in flight is repaired.
int run_elastic(const Config& cfg, const RankBody& body) {
    const std::function<void()> look = look_for_stop;
    for (;;) {
        in_wait = &look;
        member()->await_plan();
        try {
            const int code = run_generation(cfg, body);
            in_wait = nullptr;
            return code;
        } catch (const Lost&) {
            nccl_end(true);
            tcp_abandon();
            context.undo = nullptr;
        }
    }
}

}  // namespace launching
