// The header of a run on the screen.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/train/data/dataset.h"

inline namespace logs {

// Facts for the header, known once the model is planned.
struct StartInfo {
    std::string device;             // "cpu", with its name
    std::string precision;          // what run.precision resolved to
    std::string data;               // "3 shards, 4,123,456 tokens; validation 412,345"
    std::string rows = {};          // RunData::describe_rows()
    int threads = 1, world = 1;
    int64_t params = 0;             // without padding
    int vocab = 0;                  // resolved
    int micro_batch = 0;            // resolved
    size_t plan_bytes = 0;
    std::string bus_id;             // of this rank's device, for NVML; empty: no GPU
    double peak_tflops = 0;         // matmul rate of all ranks together; 0: unknown
    int64_t tokens = 0;             // of all steps, with those before this start
    std::vector<Epochs> epochs;     // of data.train, over all steps
};

// origin: the checkpoint that the run resumes; empty: a new run. Warns of text that is repeated often.
void print_header(const Config& cfg, const StartInfo& info, const std::string& origin);

std::string shown_rate(double tflops);          // 0.412, 989

}  // namespace logs
