// Kinds of model that a format holds, each a table: names of tensors, settings with a key of the format, and
// settings that every model of the kind has.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/json/json_value.h"
#include "llmc/train/save/formats/format.h"

inline namespace formats {

// A key of a format's file.
//
//     setting of `model`   values: defaults, first for a missing key, last for null; empty: key required
//     no setting           values: accepted values of the key; the first is written and is the default;
//                          empty: any value, as the key changes nothing
struct FormatKey {
    enum Use { Both, Read, Write, Short };      // Short: written as null when null yields the same value

    const char *key, *setting = nullptr;
    std::vector<Json> values = {};
    Use use = Both;
};

struct FixedSetting { const char *setting, *value; };       // "norm", "rmsnorm"

struct ForeignKind {
    const char* name;                       // "LlamaForCausalLM"
    const char* id;                         // of config.json's model_type, or GGUF's architecture
    const char* blocks;                     // before the number of a block
    std::vector<TensorName> tensors;        // empty: the format has no names of tensors
    std::vector<FormatKey> keys;            // in the order of writing
    std::vector<const char*> others;        // settings that the format has in a form of its own
    std::vector<FixedSetting> fixed;        // all other settings are GPT-2's
    bool one_window = false;                // of all layers
    bool llama3 = true;                     // model.rope_scaling: holds that of Llama 3
    bool betas = true;                      // and YaRN's, with betas of its own
    bool two_heads = false;                 // GGUF: a file has the embedding once more, as the head

    bool has_other(const std::string& setting) const;       // in others
    const char* key_of(const std::string& setting) const;
};
std::string list_of_ids(const std::vector<const ForeignKind*>& kinds);      // for messages

// A setting's value as JSON.
Json value_of_setting(const ModelConfig& m, const std::string& setting);

// The settings of a model in a file. value(): the value of a key; nullptr: no such key. read_others(): sets
// kind.others; called when the model's sizes are set and valid. Refuses values outside the limits of
// settings, and values that this program does not compute.
ModelConfig settings_of(const ForeignKind& kind, const std::string& path,
                        const std::function<const Json*(const char* key)>& value,
                        const std::function<void(ModelConfig&)>& read_others = nullptr);

// The keys and values to write, without kind.others.
Json::Members keys_to_write(const ForeignKind& kind, const ModelConfig& m);

// Settings that keep a kind from holding m, each as "model.softcap = 0, not 15"; empty: the kind holds m.
std::vector<std::string> in_the_way(const ModelConfig& m, const ForeignKind& kind);

// The first kind that holds m, as a place in kinds. REQUIRES: one does, by check_export_kind().
size_t kind_for(const ModelConfig& m, const std::vector<const ForeignKind*>& kinds);

// Calls f(foreign tensor, tensor here) for each foreign tensor of a whole model.
template <class F> void for_each_foreign(const ForeignKind& kind, const ModelConfig& m, F&& f) {
    ModelConfig one_layer = m;
    one_layer.layers = 1;
    std::vector<Tensor> tensors = whole_tensors(make_dims(one_layer));
    for (int l = 0; l < m.layers; l++)
        for (Tensor& t : tensors) {
            if (t.layer < 0 && l > 0) continue;
            if (t.layer >= 0) t.layer = l;
            for (const ForeignTensor& p : foreign_tensors(kind.tensors, kind.blocks, t)) f(p, t);
        }
}

}  // namespace formats
