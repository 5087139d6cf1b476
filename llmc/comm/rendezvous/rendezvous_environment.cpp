#include <cstdlib>

#include "llmc/base/check.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/comm/rendezvous/rendezvous.h"

inline namespace rendezvous {

static constexpr int kPorts = 8;

std::string first_host(const std::string& nodes) {
    const size_t open = nodes.find('['), comma = nodes.find(',');
    if (open == std::string::npos || comma < open) return nodes.substr(0, comma);
    const size_t number = nodes.find_first_of("-,]", open), close = nodes.find(']', open);
    if (close == std::string::npos) return nodes;
    const std::string tail = nodes.substr(close + 1);
    return nodes.substr(0, open) + nodes.substr(open + 1, number - open - 1) + tail.substr(0, tail.find(','));
}

static std::string variable(const char* name) {
    const char* text = getenv(name);
    return text ? text : "";
}

Rendezvous rendezvous_of_environment() {
    const Launcher& l = launcher();
    Rendezvous r{
        .rank = l.rank, .world = l.world, .host = variable("MASTER_ADDR"), .ports = {}, .job = l.job,
        .secret = variable("TRAIN_GPT_SECRET"), .timeout = start_patience()};
    if (r.host.empty()) {
        const std::string nodes = variable("SLURM_STEP_NODELIST");
        r.host = first_host(nodes.empty() ? variable("SLURM_JOB_NODELIST") : nodes);
    }
    if (l.on_host == l.world) r.host = "127.0.0.1";
    CHECK_INPUT(r.world == 1 || !r.host.empty(),
                "{} processes were started, and nothing says where rank 0 is: set "
                "MASTER_ADDR to its host",
                r.world);
    // torchrun's agent listens at MASTER_PORT itself
    const int port = atoi(variable("MASTER_PORT").c_str());
    if (port > 0 && port < 65536 && variable("TORCHELASTIC_USE_AGENT_STORE") != "True")
        r.ports.push_back(uint16_t(port));
    // below the ports that the kernel gives to outgoing connections
    for (uint64_t i = 0; i < kPorts; i++)
        r.ports.push_back(uint16_t(10000 + philox(stream_of(r.job.c_str()), 0, i).x[0] % 20000));
    return r;
}

}  // namespace rendezvous
