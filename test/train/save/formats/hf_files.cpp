// Folders of Hugging Face that this program writes: numbers of 16 bits, and several files with an index.
#include "test/foreign_models.h"
#include "test/program.h"

namespace PRECISION {

using test::folder, test::json;
using std::string;

static json config_of(const string& dir) { return json::parse(test::text_of(dir + "/config.json")); }

TEST_IF(!kIsBf16, exports_of_several_files_of_16_bits) {
    for (const auto& [name, dtype, near] : {std::tuple{"x", "F32", 0.}, {"x-bf16", "BF16", 1. / 256},
                                            {"x_FP16/", "F16", 1. / 2048}, {"x.f16", "F16", 1. / 2048}}) {
        const string dir = folder(string(TEST_PRECISION "_") + name);
        const Exported e = export_kind("Qwen3", {"hf:" + dir}, 20000);
        const json index = json::parse(test::text_of(dir + "/model.safetensors.index.json"));
        std::map<string, uint64_t> files;
        for (const auto& [tensor, file] : index["weight_map"].items()) files[file] = 0;
        uint64_t bytes = 0;
        for (auto& [file, size] : files) {
            const SafetensorsFile part(dir + "/" + file);
            for (const TensorInfo& t : part.tensors) {
                EXPECT(t.dtype == dtype, "%s is %s", t.name.c_str(), t.dtype.c_str());
                size += t.bytes();
            }
            EXPECT(size <= 20000 || part.tensors.size() == 1, "%s: %zu bytes", file.c_str(), size_t(size));
            bytes += size;
        }
        EXPECT(files.size() > 2 && index["metadata"]["total_size"] == bytes, "%zu files", files.size());
        EXPECT(files.contains(fmt::format("model-00001-of-{:05}.safetensors", files.size())));
        const string torch = dtype[0] == 'B' ? "bfloat16" : dtype[1] == '3' ? "float32" : "float16";
        EXPECT(config_of(dir)["dtype"] == torch && config_of(dir)["torch_dtype"] == torch);
        expect_values("hf:" + dir, e, near);
        export_kind("Qwen3", {"hf:" + dir});            // one file: no other stays
        EXPECT(!test::there(dir + "/model.safetensors.index.json") && !test::there(dir + "/" +
               files.begin()->first) && test::there(dir + "/model.safetensors"), "%s", dir.c_str());
        export_kind("Qwen3", {"hf:" + dir}, 20000);
        EXPECT(!test::there(dir + "/model.safetensors"), "%s: one file goes before the index", dir.c_str());
    }
}

TEST_IF(!kIsBf16, an_export_without_a_tokenizer_leaves_no_other) {
    const string dir = folder(TEST_PRECISION "_tokenizer");
    const Tokenizer tokenizer = Tokenizer::load("test/data/tokenizer/hf.json");
    export_kind("Qwen3", {"hf:" + dir}, 20000, &tokenizer);
    const ForeignModel with = open_foreign("hf:" + dir);
    EXPECT(with.tokenizer == dir + "/tokenizer.json", "'%s'", with.tokenizer.c_str());
    export_kind("Qwen3", {"hf:" + dir});
    for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"})
        EXPECT(!test::there(dir + "/" + name), "%s is of the export before", name);
    EXPECT(open_foreign("hf:" + dir).tokenizer.empty());
}

}  // namespace PRECISION
