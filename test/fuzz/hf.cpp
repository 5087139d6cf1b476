// Any bytes as config.json and model.safetensors.index.json of a folder of Hugging Face, beside a fixed file
// of tensors: a model whose tensors can be read, or one fatal() with exit code 78. A form feed separates the
// two texts; without one the index is as the tensors need it.
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "llmc/base/json/json_value.h"
#include "llmc/io/files/safetensors.h"
#include "test/fuzz/open_model.h"

static constexpr const char* kTensors = "tensors.safetensors";

// Of a Llama with one layer, 8 channels, 2 heads over one of keys, a feed-forward part of 8 and 12 tokens.
static const std::vector<TensorInfo>& tensors() {
    static const std::vector<TensorInfo> all = [] {
        const std::string block = "model.layers.0.";
        const std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
            {"model.embed_tokens.weight", {12, 8}}, {"model.norm.weight", {8}}, {"lm_head.weight", {12, 8}},
            {block + "input_layernorm.weight", {8}}, {block + "post_attention_layernorm.weight", {8}},
            {block + "self_attn.q_proj.weight", {8, 8}}, {block + "self_attn.k_proj.weight", {4, 8}},
            {block + "self_attn.v_proj.weight", {4, 8}}, {block + "self_attn.o_proj.weight", {8, 8}},
            {block + "mlp.gate_proj.weight", {8, 8}}, {block + "mlp.up_proj.weight", {8, 8}},
            {block + "mlp.down_proj.weight", {8, 8}}};
        std::vector<TensorInfo> infos;
        for (const auto& [name, shape] : shapes)
            infos.push_back({.name = name, .dtype = "F32", .shape = shape});
        return infos;
    }();
    return all;
}

static std::string usual_index() {
    Json::Members places;
    for (const TensorInfo& t : tensors()) places.emplace_back(t.name, kTensors);
    return to_text(Json::Members{{"weight_map", std::move(places)}});
}

// The two texts are files in memory, to which links in the folder lead.
struct Folder {
    std::string dir = (std::filesystem::temp_directory_path() / "fuzz-hf-XXXXXX").string();
    int config = memfd_create("config", 0), index = memfd_create("index", 0);

    Folder() {
        FUZZ_CHECK(mkdtemp(dir.data()));
        std::vector<TensorInfo> infos = tensors();
        std::string content = safetensors_head(infos);
        content.resize(content.size() + infos.back().end);
        write_file(dir + "/" + kTensors, content);
        link(config, "config.json");
        link(index, "model.safetensors.index.json");
    }
    ~Folder() { std::filesystem::remove_all(dir); }
    void link(int fd, const std::string& name) const {
        std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(fd), dir + "/" + name);
    }
};

static bool put(int fd, std::string_view text) {
    return ftruncate(fd, 0) == 0 && pwrite(fd, text.data(), text.size(), 0) == ssize_t(text.size());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Folder folder;
    static const std::string usual = usual_index();
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const size_t end = text.find('\f');
    const std::string_view index = end == text.npos ? usual : text.substr(end + 1);
    if (!put(folder.config, text.substr(0, end)) || !put(folder.index, index)) return 0;
    expect_input_error([&] { open_and_read("hf:" + folder.dir); });
    return 0;
}
