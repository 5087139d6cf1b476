#include "llmc/comm/transport/placement.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/host/version.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/transport/nccl.h"

Placement own_placement(bool with_gpus) {
    Placement s = {};
    gethostname(s.host, sizeof s.host - 1);
    sched_getaffinity(0, sizeof s.cores, &s.cores);
    for (const std::string& address : with_gpus ? gpu_addresses() : std::vector<std::string>())
        if (s.gpus < Placement::kMostGpus)
            address.copy(s.address[s.gpus++], sizeof s.address[0] - 1);
    if (s.gpus) s.processors = fewest_processors();
    return s;
}

static bool same_host(const Placement& a, const Placement& b) { return strcmp(a.host, b.host) == 0; }

int ranks_of_host(const Placements& placements, const Placement& own) {
    return int(std::count_if(placements.begin(), placements.end(),
                             [&](const Placement& s) { return same_host(s, own); }));
}

int threads_of_rank(const Placements& placements, const Placement& own) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (const Placement& s : placements)
        if (same_host(s, own)) CPU_OR(&cores, &cores, &s.cores);
    return std::max(1, std::min(CPU_COUNT(&own.cores), CPU_COUNT(&cores) / ranks_of_host(placements, own)));
}

static int number_on_host(const Placements& placements, int rank) {
    int number = 0;
    for (int r = 0; r < rank; r++) number += same_host(placements[size_t(r)], placements[size_t(rank)]);
    return number;
}

int device_of(const Placements& placements, int rank) {
    return placements[size_t(rank)].gpus == 1 ? 0 : number_on_host(placements, rank);
}

void check_devices(const Placements& placements) {
    const int ranks = int(placements.size());
    for (int r = 0; r < ranks; r++) {
        const Placement& s = placements[size_t(r)];
        CHECK_INPUT(s.gpus > 0,
                    "rank {} finds no GPU on {}: look at nvidia-smi there and at CUDA_VISIBLE_DEVICES, or "
                    "build with DEVICE=cpu", r, s.host);
        CHECK_INPUT(device_of(placements, r) < s.gpus,
                    "{} ranks are more than the {} GPUs of {}: start at most {} there (parallel.ranks, "
                    "mpirun -np, --ntasks-per-node), or more machines",
                    ranks_of_host(placements, s), s.gpus, s.host, s.gpus);
    }
    for (int r = 0; r < ranks; r++)
        for (int other = 0; other < r; other++) {
            const Placement &a = placements[size_t(other)], &b = placements[size_t(r)];
            const char* address = b.address[device_of(placements, r)];
            CHECK_INPUT(!same_host(a, b) || strcmp(a.address[device_of(placements, other)], address) != 0,
                        "ranks {} and {} are both on the GPU {} of {}: each rank needs one of its own. Start "
                        "fewer there, or let each see another (CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)",
                        other, r, address, b.host);
        }
}

void print_table(const Config& cfg, const Placements& placements) {
    const int ranks = int(placements.size()), threads = cfg.run.threads;
    const MeshShape shape = mesh_shape(cfg.parallel, ranks);
    static constexpr char kColumns[] = "{:>5}  {:<{}}  {:<14}  {:>4} {:>4} {:>4}\n";
    size_t width = 4;
    for (const Placement& s : placements) width = std::max(width, strlen(s.host));
    print("{} ranks: dp {} x pp {} x tp {}, tp innermost\n", ranks, shape.dp, shape.pp, shape.tp);
    print(kColumns, "rank", "host", width, "device", "dp", "pp", "tp");
    for (int r = 0; r < ranks; r++) {
        const Placement& s = placements[size_t(r)];
        const auto at = places_of(shape, r);
        const int own = threads ? threads : threads_of_rank(placements, s);
        const std::string gpu = s.gpus ? fmt::format(" {}", device_of(placements, r)) : "";
        print(kColumns, r, s.host, width,
              fmt::format("{}{}, {}", built_device, gpu, counted(own, "thread")),
              data_parallel_of(shape, r).index, at[0].index, at[2].index);
    }
    fflush(stdout);
}
