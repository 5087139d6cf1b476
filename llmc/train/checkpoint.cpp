#include "llmc/train/checkpoint.h"

#include <algorithm>

#include "llmc/io/safetensors.h"
#include "llmc/train/model.h"
#include "llmc/train/run_folder.h"

namespace PRECISION {

static constexpr size_t kPiece = 65536;    // elements that are copied at once

static std::vector<int64_t> shape_of(const Param& p) {
    if (p.cols == 1) return {p.used_rows};
    return {p.used_rows, p.cols};
}

void Checkpoint::write_weights(const std::string& path) const {
    const Layout& layout = model.zero.layout;
    std::vector<TensorInfo> infos;
    for (const Tensor& t : layout.tensors)
        infos.push_back({.name = t.name, .dtype = name_of(dtype_of<real>), .shape = shape_of(t.param)});
    SafetensorsWriter writer(path, infos, {{"format", "train_gpt 1"}});
    std::vector<real> piece(kPiece);
    for (const Tensor& t : layout.tensors)
        for (size_t first = 0; first < t.param.used(); first += kPiece) {
            const size_t count = std::min(kPiece, t.param.used() - first);
            model.zero.export_tensor(t, first, count, piece.data());
            writer.write(piece.data(), count * sizeof(real));
        }
    writer.close();
}

std::string Checkpoint::save(int64_t step) const {
    const NewFolder folder(cfg.run.dir + "/step_" + std::to_string(step));
    write_weights(folder.temporary + "/model.safetensors");
    write_file(folder.temporary + "/config.json", to_json(cfg) + "\n");
    if (tokenizer) tokenizer->save(folder.temporary + "/tokenizer.json");
    folder.publish();
    acknowledge_checkpoint(cfg.run.dir, step, folder.path);
    prune_checkpoints(cfg.checkpoint, cfg.run.dir);
    return folder.path;
}

// A tensor stored as T, converted to real.
template <class T> static void load_tensor(const SafetensorsFile& file, const Tensor& t, Zero& zero) {
    const TensorInfo& info = file.require(t.name, name_of(dtype_of<T>), shape_of(t.param));
    std::vector<T> stored(kPiece);
    std::vector<real> piece(kPiece);
    for (size_t first = 0; first < t.param.used(); first += kPiece) {
        const size_t count = std::min(kPiece, t.param.used() - first);
        file.read(info, stored.data(), first * sizeof(T), count * sizeof(T));
        std::copy_n(stored.begin(), count, piece.begin());
        zero.import_tensor(t, first, count, piece.data());
    }
}

void Checkpoint::load(const std::string& dir) const {
    const SafetensorsFile file(dir + "/model.safetensors");
    for (const Tensor& t : model.zero.layout.tensors) {
        const TensorInfo* info = file.find(t.name);
        if (info && info->dtype == "F64") load_tensor<double>(file, t, model.zero);
        else load_tensor<float>(file, t, model.zero);
    }
}

void Checkpoint::load_or_init() const {
    if (cfg.model.init == "random") model.zero.init_weights(uint64_t(cfg.run.seed));
    else load(cfg.model.init);
}

}  // namespace PRECISION
