#include "llmc/train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/io/safetensors.h"
#include "llmc/train/model.h"
#include "llmc/train/run_folder.h"
#include "llmc/train/votes.h"

// Bytes free on the disk of a folder; all that there can be where the system does not tell.
static uint64_t free_bytes(const std::string& dir) {
    std::error_code error;
    const auto space = std::filesystem::space(dir, error);
    return error ? UINT64_MAX : uint64_t(space.available);
}

namespace PRECISION {

static constexpr size_t kPiece = 65536;    // elements that are copied at once

static std::vector<int64_t> shape_of(const Param& p) {
    if (p.whole_cols == 1) return {p.whole_rows};
    return {p.whole_rows, p.whole_cols};
}

// What an attempt ends in by fatal().
struct Attempts {
    std::optional<Fatal> error;

    // Does nothing after an error.
    template <class F> void operator()(F&& f) {
        if (error) return;
        const bool thrown_before = std::exchange(context.throw_on_fatal, true);
        try {
            f();
        } catch (const Fatal& e) {
            error = e;
        }
        context.throw_on_fatal = thrown_before;
    }
};

uint64_t Checkpoint::bytes() const {
    uint64_t elements = 0;
    for (const Tensor& t : whole_tensors(model.zero.d)) elements += t.param.whole();
    return elements * sizeof(real);
}

static std::vector<TensorInfo> infos_of(const std::vector<Tensor>& tensors) {
    std::vector<TensorInfo> infos;
    for (const Tensor& t : tensors)
        infos.push_back({.name = t.name, .dtype = name_of(dtype_of<real>), .shape = shape_of(t.param)});
    return infos;
}

// Rank 0 writes. All ranks bring the tensors together, also where the disk has failed it.
std::optional<Fatal> Checkpoint::write(int64_t step) const {
    const bool writes = model.mesh.rank == 0;
    const std::vector<Tensor> tensors = whole_tensors(model.zero.d);
    std::optional<NewFolder> folder;
    std::optional<SafetensorsWriter> writer;
    Attempts attempt;
    attempt([&] {
        if (!writes) return;
        CHECK_INPUT(bytes() <= free_bytes(cfg.run.dir), "no space left on the device");
        folder.emplace(cfg.run.dir + "/step_" + std::to_string(step));
        writer.emplace(folder->temporary + "/model.safetensors", infos_of(tensors),
                       SafetensorsMetadata{{"format", "train_gpt 1"}});
    });
    std::vector<real> piece(kPiece);
    for (const Tensor& t : tensors)
        for (size_t first = 0; first < t.param.whole(); first += kPiece) {
            const size_t count = std::min(kPiece, t.param.whole() - first);
            model.zero.export_tensor(t, first, count, piece.data());
            attempt([&] { if (writes) writer->write(piece.data(), count * sizeof(real)); });
        }
    attempt([&] {
        if (!writes) return;
        writer->close();
        write_file(folder->temporary + "/config.json", to_json(cfg) + "\n");
        if (!tokenizer_json.empty()) write_file(folder->temporary + "/tokenizer.json", tokenizer_json);
        folder->publish();
        acknowledge_checkpoint(cfg.run.dir, step, folder->path);
        prune_checkpoints(cfg.checkpoint, cfg.run.dir);
    });
    return attempt.error;
}

std::string Checkpoint::save(int64_t step, bool last) const {
    const std::optional<Fatal> error = write(step);
    if (error && error->code != kExitConfig) fatal(error->code, __FILE__, __LINE__, "%s", error->what());
    const bool failed = any_of(model.mesh.world, error && !last);
    if (!error) return failed ? "" : cfg.run.dir + "/step_" + std::to_string(step);
    const std::string text =
        strf("the checkpoint of step %" PRId64 " is not saved: %s.\n       It takes %s; in %s %s are free.",
             step, error->what(), human_bytes(double(bytes())).c_str(), cfg.run.dir.c_str(),
             human_bytes(double(free_bytes(cfg.run.dir))).c_str());
    if (last) fatal(kExitConfig, __FILE__, __LINE__, "%s It was the run's last, so what was trained since "
                    "the one before is lost.\n       Make room before the next run, or name another disk by "
                    "run.dir", text.c_str());
    fprintf(stderr, "warning: %s Training goes on.\n       Make room, or keep fewer checkpoints "
            "(checkpoint.keep_last); kill -USR1 %d tries again\n", text.c_str(), int(getpid()));
    return "";
}

// A tensor stored as T, converted to real.
template <class T> static void load_tensor(const SafetensorsFile& file, const Tensor& t, Zero& zero) {
    const TensorInfo& info = file.require(t.name, name_of(dtype_of<T>), shape_of(t.param));
    std::vector<T> stored(kPiece);
    std::vector<real> piece(kPiece);
    for (size_t first = 0; first < t.param.whole(); first += kPiece) {
        const size_t count = std::min(kPiece, t.param.whole() - first);
        file.read(info, stored.data(), first * sizeof(T), count * sizeof(T));
        std::copy_n(stored.begin(), count, piece.begin());
        zero.import_tensor(t, first, count, piece.data());
    }
}

void Checkpoint::load(const std::string& dir) const {
    const SafetensorsFile file(dir + "/model.safetensors");
    for (const Tensor& t : whole_tensors(model.zero.d)) {
        const TensorInfo* info = file.find(t.name);
        if (info && info->dtype == "F64") load_tensor<double>(file, t, model.zero);
        else load_tensor<float>(file, t, model.zero);
    }
}

void Checkpoint::load_or_init() const {
    if (cfg.model.init == "random") model.zero.init_weights(uint64_t(cfg.run.seed));
    else {
        check_init(cfg.model.init);
        load(cfg.model.init);
    }
}

}  // namespace PRECISION
