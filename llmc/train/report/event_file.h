// TensorBoard's event file: records of protobuf messages. Aim and trackio read the file as well.
//
//     record   uint64 length, uint32 masked CRC-32C of it, message, uint32 masked CRC-32C of the message
//     Event    1: wall_time, 2: step, 3: file_version, 5: Summary
//     Summary  1: Value, repeated, of 1: tag, 2: simple_value, 5: HistogramProto, 8: tensor, 9: metadata
//     HistogramProto   1: min, 2: max, 3: num, 4: sum, 5: sum_squares, 6: bucket_limit, 7: bucket
//
// https://www.tensorflow.org/tutorials/load_data/tfrecord, tensorboard/compat/proto/{event,summary}.proto
#pragma once
#include "llmc/base/disk/files.h"
#include "llmc/train/report/sinks.h"

inline namespace report {

struct EventFile {
    static constexpr const char* kName = "events.out.tfevents.0.train_gpt";

    // Opens run_dir's file and keeps its records up to `step`; -1: none. A file that cannot be written is a
    // warning, once, and the run goes on.
    void open(const std::string& run_dir, int64_t step);

    // Adds a record: figures that have a tag, scalars, histograms, the text of a sample. Nothing before
    // open(). A record without room on the disk is left out whole. Buckets are the bins of
    // ops/tensor_spread.h; the first also has the zeros. Elements that are not finite are left out.
    void add(const Logged& logged);

private:
    Fd file_;
    std::string path_;
    bool failed_ = false;

    void write(const std::string& message);
};

// CRC-32C (Castagnoli) of data, masked as in a record.
uint32_t masked_crc32c(std::string_view data);

}  // namespace report
