#include "llmc/train/save/formats/format.h"

#include <cstring>

#include "llmc/base/check.h"

std::string foreign_name(std::span<const TensorName> names, const char* blocks, const Tensor& t) {
    for (const TensorName& name : names)
        if (!strcmp(name.own, t.param.name))
            return t.layer < 0 ? name.theirs : blocks + std::to_string(t.layer) + "." + name.theirs;
    fatal(kExitInternal, __FILE__, __LINE__, "no name for the tensor {} beside '{}'", t.param.name,
          names.front().theirs);
}

ModelConfig shape_by_keys(const ShapeKeys& keys, const std::string& path,
                          const std::function<int(const char* key)>& number) {
    ModelConfig m;
    m.layers = number(keys.layers);
    m.heads = number(keys.heads);
    m.channels = number(keys.channels);
    m.context = number(keys.context);
    m.vocab = number(keys.vocab);
    const std::string wrong = wrong_shape(m, keys);
    CHECK_INPUT(wrong.empty(), "{}: {}", path, wrong);
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
    CHECK_INPUT(head_is_embedding(m, wte), "model.init = '{}': its lm_head.weight is not its wte.weight. "
                "This program computes with tied ones only (tie_word_embeddings = true):\n       the logits "
                "would be others than the model's", m.from);
}
