#include "llmc/comm/transport/placement.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <unordered_map>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/host/version.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/transport/nccl.h"

inline namespace transport {

// ---------------------------------------------------------------------------------------------------------
// this rank

static std::string line_of(const std::string& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

// The cores of the nearest mpirun or its daemon above this process; 0: there is none.
static int cores_of_mpirun() {
    int pid = getppid();
    for (int depth = 0; depth < 8 && pid > 1; depth++) {
        cpu_set_t cores;
        if (is_mpirun(pid)) return sched_getaffinity(pid, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
        const std::string stat = line_of(fmt::format("/proc/{}/stat", pid));    // pid (name) state parent ...
        const size_t end = stat.rfind(") ");
        pid = end == std::string::npos ? 0 : atoi(stat.c_str() + std::min(stat.size(), end + 4));
    }
    return 0;
}

// Known where nobody has chosen the cores of the ranks: below a bare mpirun, and below srun.
static int cores_of_launcher() {
    if (launcher().name == "srun") {
        const char* cores = getenv("SLURM_CPUS_ON_NODE");
        return cores ? atoi(cores) : 0;
    }
    const bool bound = getenv("OMPI_MCA_orte_bound_at_launch");
    const bool chosen = !bound || getenv("OMPI_MCA_hwloc_base_binding_policy");
    return launcher().name == "mpirun" && !chosen ? cores_of_mpirun() : 0;
}

Placement own_placement(bool with_gpus) {
    Placement s = {};
    // as in NCCL, which refuses two ranks on a GPU of one host
    if (const char* id = with_gpus ? getenv("NCCL_HOSTID") : nullptr; id && *id) {
        std::string(id).copy(s.host, sizeof s.host - 1);
    } else {
        gethostname(s.host, sizeof s.host - 1);
        line_of("/proc/sys/kernel/random/boot_id").copy(s.boot, sizeof s.boot - 1);
    }
    sched_getaffinity(0, sizeof s.cores, &s.cores);
    s.host_cores = cores_of_launcher();
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0) s.shared_memory = uint64_t(shm.f_blocks) * shm.f_frsize;
    for (const std::string& address : with_gpus ? gpu_addresses() : std::vector<std::string>())
        if (s.gpus < Placement::kMostGpus)
            address.copy(s.address[s.gpus++], sizeof s.address[0] - 1);
    if (s.gpus) s.processors = fewest_processors();
    if (with_gpus) s.held = gpu_in_use() + 1;
    return s;
}

// ---------------------------------------------------------------------------------------------------------
// all ranks

Hosts hosts_of(const Placements& placements) {
    Hosts all;
    std::unordered_map<std::string, int> number;            // of a host
    std::unordered_map<std::string, int> ranks;             // of a host that see the same GPUs
    std::unordered_map<std::string, std::set<int>> held;    // GPUs of processes that live on (run.elastic)
    std::unordered_map<std::string, int> next;              // GPU of the next rank with that list
    std::vector<std::string> lists;
    for (const Placement& s : placements) {
        placements_compared++;
        const std::string name = std::string(s.host) + "\n" + s.boot;
        const int host = number.try_emplace(name, int(number.size())).first->second;
        all.hosts.resize(number.size());
        Hosts::Host& h = all.hosts[size_t(host)];
        std::string list = name + "\n" + std::to_string(s.gpus);
        for (int i = 0; i < s.gpus; i++) list += std::string("\n") + s.address[i];
        const int before = ranks[list]++;
        h.own_lists = h.own_lists || before < h.ranks;
        if (s.held) held[list].insert(s.held - 1);
        h.ranks++;
        CPU_OR(&h.cores, &h.cores, &s.cores);
        all.of_rank.push_back(host);
        lists.push_back(list);
    }
    for (size_t r = 0; r < placements.size(); r++) {
        const Placement& s = placements[r];
        all.sharing.push_back(ranks[lists[r]]);
        int& gpu = next[lists[r]];
        while (!s.held && held[lists[r]].contains(gpu)) gpu++;
        const int own = s.held ? s.held - 1 : gpu++;
        all.device.push_back(s.gpus == 1 ? 0 : own);
    }
    return all;
}

int threads_of_rank(const Placements& placements, const Hosts& hosts, int rank) {
    const Hosts::Host& h = hosts.host(rank);
    return std::max(1, std::min(CPU_COUNT(&placements[size_t(rank)].cores), CPU_COUNT(&h.cores) / h.ranks));
}

void check_devices(const Placements& placements, const Hosts& hosts) {
    std::unordered_map<std::string, int> on_gpu;            // rank
    for (int r = 0; r < int(placements.size()); r++) {
        const Placement& s = placements[size_t(r)];
        const int device = hosts.device[size_t(r)];
        CHECK_INPUT(s.gpus > 0,
                    "rank {} finds no GPU on {}: look at nvidia-smi there and at CUDA_VISIBLE_DEVICES, or "
                    "build with DEVICE=cpu", r, s.host);
        CHECK_INPUT(device < s.gpus,
                    "{} ranks are more than the {} GPUs of {}: start at most {} there (parallel.ranks, "
                    "mpirun -np, --ntasks-per-node), or more machines",
                    hosts.sharing[size_t(r)], s.gpus, s.host, s.gpus);
        const std::string gpu = fmt::format("{} {}", hosts.of_rank[size_t(r)], s.address[device]);
        const auto [other, free] = on_gpu.try_emplace(gpu, r);
        CHECK_INPUT(free,
                    "ranks {} and {} are both on the GPU {} of {}: each rank needs one of its own. Start "
                    "fewer there, or let each see another (CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)",
                    other->second, r, s.address[device], s.host);
    }
}

// ---------------------------------------------------------------------------------------------------------
// cores beside a GPU

// "0-31,64-95" of sysfs
static cpu_set_t cores_in(const std::string& list) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    const char* at = list.c_str();
    for (char* end; *at; at = *end ? end + 1 : end) {
        const long first = strtol(at, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (end == at) break;
        for (long c = first; c <= last && c < CPU_SETSIZE; c++) CPU_SET(size_t(c), &cores);
    }
    return cores;
}

// The rank's cores beside its GPU; all of its cores where the machine names none of them.
static cpu_set_t cores_beside_gpu(const Placement& s, int device, const std::string& root) {
    std::string address = s.address[device];
    std::transform(address.begin(), address.end(), address.begin(), [](char c) { return char(tolower(c)); });
    cpu_set_t near = cores_in(line_of(root + "/sys/bus/pci/devices/" + address + "/local_cpulist"));
    CPU_AND(&near, &near, &s.cores);
    return CPU_COUNT(&near) ? near : s.cores;
}

void bind_to_gpu(Placements& placements, const Hosts& hosts, int rank, const std::string& root) {
    const int host = hosts.of_rank[size_t(rank)];
    for (size_t r = 0; r < placements.size(); r++) {
        if (hosts.of_rank[r] != host || !placements[r].gpus) continue;
        placements[r].cores = cores_beside_gpu(placements[r], hosts.device[r], root);
    }
    if (!placements[size_t(rank)].gpus) return;
    (void)sched_setaffinity(0, sizeof(cpu_set_t), &placements[size_t(rank)].cores);
}

// ---------------------------------------------------------------------------------------------------------
// the start of a run

static std::string unused_cores(const Placement& s, const Hosts::Host& h) {
    const int used = CPU_COUNT(&h.cores);
    if (2 * used > s.host_cores) return "";
    const std::string ranks = h.ranks == 1 ? "its rank" : fmt::format("its {} ranks", h.ranks);
    if (launcher().name == "srun")
        return fmt::format("{}: srun binds {} to {} of {} cores: give each --cpus-per-task={}", s.host, ranks,
                           used, s.host_cores, s.host_cores / h.ranks);
    return fmt::format("{}: mpirun binds {} to {} of {} cores: add --bind-to none, or use "
                       "scripts/run_node.sh -n {}", s.host, ranks, used, s.host_cores, h.ranks);
}

static std::string unused_gpus(const Placement& s, const Hosts& hosts, int rank) {
    const int ranks = hosts.sharing[size_t(rank)];
    if (!hosts.host(rank).own_lists || ranks >= s.gpus) return "";
    return fmt::format("{}: rank {} sees {} GPUs that no other rank sees, and uses one: --gpus-per-task=1",
                       s.host, rank, s.gpus);
}

// NCCL's buffers between processes of a host that reach each other's GPUs through the host.
static std::string small_shared_memory(const Placement& s, const Hosts::Host& h) {
    static constexpr uint64_t kOfRank = 64 << 20;
    const uint64_t needed = kOfRank * uint64_t(h.ranks);
    if (!s.gpus || h.ranks == 1 || !s.shared_memory || s.shared_memory >= needed) return "";
    return fmt::format("{}: /dev/shm has {}, and NCCL may need {} for {} ranks: docker run --shm-size=1g, or "
                       "--ipc=host", s.host, human_bytes(double(s.shared_memory)),
                       human_bytes(double(needed)), h.ranks);
}

static std::string tp_between_hosts(const Config& cfg, const Placements& placements, const Hosts& hosts) {
    const int ranks = int(placements.size());
    const MeshShape shape = mesh_shape(cfg.parallel, ranks);
    for (int r = 0; r < ranks; r++) {
        const int first = grid_slice(shape, axis_bit(kTp), r).lowest;
        if (hosts.of_rank[size_t(first)] == hosts.of_rank[size_t(r)]) continue;
        return fmt::format("parallel.tp = {} spans hosts: rank {} is on {}, rank {} on {}. Tensor "
                           "parallelism sends in every block: choose a parallel.tp that divides the ranks "
                           "of a host", shape.tp, first, placements[size_t(first)].host, r,
                           placements[size_t(r)].host);
    }
    return "";
}

std::vector<std::string> placement_warnings(const Config& cfg, const Placements& placements,
                                            const Hosts& hosts) {
    std::vector<std::string> all;
    std::vector<bool> seen(hosts.hosts.size());
    for (int r = 0; r < int(placements.size()); r++) {
        const size_t host = size_t(hosts.of_rank[size_t(r)]);
        if (seen[host]) continue;
        seen[host] = true;
        const Placement& s = placements[size_t(r)];
        for (const std::string& line : {unused_cores(s, hosts.host(r)), unused_gpus(s, hosts, r),
                                        small_shared_memory(s, hosts.host(r))})
            if (!line.empty()) all.push_back(line);
    }
    const std::string spans = tp_between_hosts(cfg, placements, hosts);
    if (!spans.empty()) all.push_back(spans);
    return all;
}

void print_table(const Config& cfg, const Placements& placements, const Hosts& hosts) {
    const int ranks = int(placements.size()), threads = cfg.run.threads;
    const MeshShape shape = mesh_shape(cfg.parallel, ranks);
    const std::vector<MeshAxis> axes = shown_axes(shape);
    static constexpr char kColumns[] = "{:>5}  {:<{}}  {:<14} ";
    size_t width = 4;
    for (const Placement& s : placements) width = std::max(width, strlen(s.host));
    std::string sizes, names;
    for (const MeshAxis a : axes) {
        const char* const name = axis_rows[a].name;
        sizes += fmt::format("{}{} {}", sizes.empty() ? "" : " x ", name, shape.*axis_rows[a].size);
        names += fmt::format(" {:>4}", name);
    }
    print("{} ranks: {}, {} innermost\n", ranks, sizes, axis_rows[axes.back()].name);
    print(kColumns, "rank", "host", width, "device");
    print("{}\n", names);
    for (int r = 0; r < ranks; r++) {
        const Placement& s = placements[size_t(r)];
        const int own = threads ? threads : threads_of_rank(placements, hosts, r);
        const std::string gpu = s.gpus ? fmt::format(" {}", hosts.device[size_t(r)]) : "";
        print(kColumns, r, s.host, width, fmt::format("{}{}, {}", built_device, gpu, counted(own, "thread")));
        for (const MeshAxis a : axes) print(" {:>4}", index_on(shape, a, r));
        print("\n");
    }
    fflush(stdout);
}

}  // namespace transport
