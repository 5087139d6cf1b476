// For comparison with another program, in FP32: logits of a model for given ids, or the model's weights.
//
//     dev/logits INIT IDS OUT         INIT as in model.init; IDS: int32; OUT: (ids, vocabulary) of float
//     dev/logits INIT --files=BYTES FOLDER    in Hugging Face's form, in files of BYTES at most
//
// The ids are one row of training's forward pass.
#include <omp.h>

#include <cstring>
#include <map>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/host/machine.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/save/adopt.h"
#include "llmc/train/save/checkpoint.h"
#include "llmc/train/save/formats/formats.h"

using Write = int(const std::string& init, const std::string& what, const std::string& out);
inline std::map<std::string, Write*> writers;       // by precision

static constexpr std::string_view kFiles = "--files=";

namespace PRECISION {
namespace {

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)

std::vector<int32_t> ids_of(const std::string& path) {
    const std::string bytes = read_file(path);
    std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
    memcpy(ids.data(), bytes.data(), ids.size() * sizeof(int32_t));
    CHECK_INPUT(!ids.empty() && ids.size() <= 8192, "{}: {} ids, expected 1 to 8192", path, ids.size());
    return ids;
}

// As --export writes, but for the size of the files.
int write_folder(const std::string& init, uint64_t largest, const std::string& folder) {
    Config cfg;
    cfg.model.init = init;
    adopt_whole_model(cfg, model_of(init));
    Model model(cfg, Mesh(), 1, true);
    model.allocate();
    load_weights(model.shards, init);
    const auto read = [&](const Tensor& t) { return whole_in_fp32(model.shards, t); };
    export_to({.shape = cfg.model, .layout = model.shards.layout, .read = read, .tokenizer = nullptr,
               .bf16 = false, .largest_file = largest}, "hf:" + folder);
    return kExitDone;
}

int write_logits(const std::string& init, const std::string& what, const std::string& out) {
    if (what.starts_with(kFiles)) return write_folder(init, std::stoull(what.substr(kFiles.size())), out);
    const std::string& ids_path = what;
    const std::vector<int32_t> ids = ids_of(ids_path);
    const int T = int(ids.size());
    Config cfg;
    cfg.model.init = init;
    adopt_whole_model(cfg, model_of(init));
    CHECK_INPUT(T <= cfg.model.context, "{} ids, and the model's context is {}", T, cfg.model.context);
    for (const int32_t id : ids)
        CHECK_INPUT(id >= 0 && id < cfg.model.vocab, "id {} of {}", id, cfg.model.vocab);
    if (cfg.model.position == PositionKind::Rope) cfg.model.context = T;
    cfg.train = {.steps = 0, .batch_tokens = cfg.model.context, .micro_batch = 1, .max_skips = 0};
    Model model(cfg, Mesh(), 1, true);
    model.allocate();
    load_weights(model.shards, init);
    std::vector<int> order(model.gpt.part.layers.size());
    for (size_t l = 0; l < order.size(); l++) order[l] = int(l);
    model.zero.begin_step(order);
    model.gpt.forward(model.zero, {.tokens = ids.data(), .targets = ids.data(), .B = 1, .T = T});

    const Dims& d = model.shards.d;
    const HeadTensors<floatX> head = model.zero.head();
    NewFile file(out);
    for (int t = 0; t < T; t += model.gpt.logit_rows) {
        const int rows = std::min(model.gpt.logit_rows, T - t);
        ops::matmul_forward(model.gpt.logits, model.gpt.head[0].lnf + size_t(t) * size_t(d.C), head.w, head.b,
                            rows, d.C, d.Vp);
        for (int i = 0; i < rows; i++) {
            const auto row = model.decoder->on_host(model.gpt.logits + size_t(i) * size_t(d.Vp));
            const std::vector<float> values(row.begin(), row.end());
            file.write(values.data(), values.size() * sizeof(float));
        }
    }
    file.commit();
    return kExitDone;
}

}  // namespace

[[maybe_unused]] static const bool added = writers.emplace(TEXT_OF(PRECISION), write_logits).second;

}  // namespace PRECISION

// Each precision's object has a main().
[[gnu::weak]] int main(int argc, char** argv) {
    CHECK_INPUT(argc == 4, "usage: dev/logits INIT IDS OUT, or INIT --files=BYTES FOLDER");
    context.threads = cores();
    omp_set_num_threads(context.threads);
    return writers.at("fp32")(argv[1], argv[2], argv[3]);
}
