// How a run is emulated. Each can be set by the environment:
//
//     EMU_ORDER=forward | reverse | random[:SEED]    order of blocks, warps and threads
//     EMU_ASYNC=wait | issue                         when an asynchronous copy takes place
//     EMU_STREAMS=eager | lazy                       lazy: work runs when somebody waits for it, not before
//     EMU_NCCL=wait | issue                          of lazy streams: when NCCL's calls run
//     EMU_ARCH=75 | 80 | 86 | 89 | 90 | 100 | 103 | 120    the architecture whose limits hold
//     EMU_NAME=NAME                                  the device's; one that does not begin with "emulated" is
//                                                    taken for a GPU: kernels are chosen by their times
//     EMU_DRIVER=12020                               the latest CUDA that its driver knows; 0: there is none
//     EMU_DEVICES=16                                 how many there are
//     EMU_BINARY="80 90a ptx80"                      code that the program is taken to hold; empty: any
//     EMU_TIMEOUT=SECONDS                            CPU time of one launch, after which it counts as endless
//     EMU_HOST=allow | refuse                        refuse: host code that touches device memory is ended
//     EMU_RED_ZONES=BYTES                            between the tensors of an arena
//     EMU_RAN=FILE                                   kernels that ran are appended to FILE, one a line, with
//                                                    the most threads of a block, and the least and the most
//                                                    bytes of dynamic shared memory
//     EMU_COMMS=FILE                                 likewise NCCL's communicators: name, ranks, calls
//     EMU_LIVES=FILE                                 likewise a line for each communicator that was made,
//                                                    destroyed or aborted, with its process
//     EMU_PROCESSES=FOLDER                           ranks are processes: NCCL's calls meet in files there;
//                                                    not with EMU_HOST=refuse
//     EMU_POISON=FILE                                the next launch of a process that can remove FILE fails,
//                                                    and every later one: its context is gone
//     EMU_WAITS=FILE                                 likewise calls in which the host waited for the device,
//                                                    and the operations left after each (lazy streams)
//     EMU_TIMES=FILE                                 likewise a line for each record of an event with timing
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace emulator {

enum class Order { Forward, Reverse, Random };

struct Settings {
    Order order = Order::Forward;
    uint64_t seed = 1;
    bool late_copies = true;
    bool lazy_streams = false;
    bool early_messages = false;
    bool refuse_host = false;        // set before the first allocation
    int arch = 90;
    int driver = 13000, devices = 16;
    int processors = 2;              // of a device: small grids fill the device
    std::string binary;
    double timeout = 60;
    bool count = false;              // of bytes, sectors and bank conflicts; costs time
    size_t l2_bytes = 0;             // 0: of the architecture
    int l2_blocks = 0;               // blocks that share L2 at once (l2.h); 0: L2 is not emulated
    bool wrong_products = false;     // cuBLASLt's are off by a tenth
    // cublasStatus_t of cuBLASLt's answer to a product with an epilogue, to a product without, and to an
    // attribute of an epilogue; 0: no refusal
    int refused_epilogue = 0, refused_product = 0, refused_attribute = 0;
    std::string name;                // empty: "emulated sm_90"
    std::string ran_file, floors_file, waits_file, times_file, comms_file, lives_file;
    std::string processes, poison_file;
    bool silent_peers = false;       // threads stand for processes: NCCL tells nobody of a rank that is
                                     // gone, and CUDA waits for no kernel of another rank
};
extern Settings settings;

extern std::atomic<uint64_t> copy_calls;        // of cudaMemcpyAsync and cudaMemcpy2DAsync so far

// Bytes of shared memory for a block of an architecture, with the opt-in.
size_t shared_limit_of(int arch);

}  // namespace emulator
