#include "llmc/train/save/formats/interchange.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/train/save/formats/formats.h"

bool is_foreign(const std::string& init) { return init.starts_with("hf:") || init.starts_with("llmc:"); }

std::string path_of(const std::string& to) { return to.substr(to.find(':') + 1); }

void export_to(const OwnModel& m, const std::string& to) {
    if (to.starts_with("hf:")) export_hf(m, path_of(to));
    else if (to.starts_with("gguf:")) export_gguf(m, path_of(to));
    else export_llmc(m, path_of(to));
}

std::vector<std::string> files_of_export(const std::string& to) {
    return to.starts_with("hf:") ? files_of_hf(path_of(to)) : std::vector<std::string>{path_of(to)};
}

void remove_export(const std::string& to, bool tokenizer) {
    if (to.starts_with("hf:")) return remove_hf(path_of(to), tokenizer);
    CHECK_INPUT(unlink(path_of(to).c_str()) == 0, "%s: cannot be removed: %s", to.c_str(), strerror(errno));
}

ForeignModel open_foreign(const std::string& from) {
    const std::string path = path_of(from);
    CHECK_INPUT(!path.empty(), "model.init = '%s': a path is missing after the colon", from.c_str());
    ForeignModel m = from.starts_with("hf:") ? open_hf(path)
                   : from.starts_with("gguf:") ? open_gguf(path) : open_llmc(path);
    m.from = from;
    return m;
}

bool head_is_embedding(const ForeignModel& m, const Tensor& wte) {
    if (!m.head) return true;
    bool same = true;
    std::vector<float> head, embedding;
    for_each_slice(wte, [&](size_t row, size_t rows) {
        if (!same) return;
        head.resize(rows * size_t(wte.param.whole_cols)), embedding.resize(head.size());
        m.head(row, rows, head.data());
        m.read(wte, row, rows, embedding.data());
        same = head == embedding;
    });
    return same;
}

void check_head(const ForeignModel& m, const Tensor& wte) {
    CHECK_INPUT(head_is_embedding(m, wte), "model.init = '%s': its lm_head.weight is not its wte.weight. "
                "This program computes with tied ones only (tie_word_embeddings = true):\n       the logits "
                "would be others than the model's", m.from.c_str());
}

void fit_to_foreign(Config& cfg, const ForeignModel& m) {
    ModelConfig& own = cfg.model;
    if (!own.vocab) own.vocab = m.shape.vocab;
    if (cfg.data.tokenizer.empty()) cfg.data.tokenizer = m.tokenizer;
    const auto same = [&](const char* key, int here, int there) {
        CHECK_INPUT(here == there, "model.%s = %d, but the model of model.init = '%s' has %d; set model.%s "
                    "to %d", key, here, m.from.c_str(), there, key, there);
    };
    same("layers", own.layers, m.shape.layers);
    same("heads", own.heads, m.shape.heads);
    same("channels", own.channels, m.shape.channels);
    same("vocab", own.vocab, m.shape.vocab);
    CHECK_INPUT(own.context <= m.shape.context,
                "model.context = %d, but the model of model.init = '%s' knows %d positions; set it to "
                "at most that", own.context, m.from.c_str(), m.shape.context);
}
