// The tensors of a folder of Hugging Face: model.safetensors, or the files that model.safetensors.index.json
// names, {"weight_map": {tensor: file}}.
#include <set>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/json/json_file.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/base/numbers/half.h"
#include "llmc/base/terminal.h"
#include "llmc/train/save/formats/format_hf.h"

inline namespace formats {

static constexpr size_t kMostFiles = 10000;

// Tensor and file. A name in an index is a plain one: a file of the folder.
static std::map<std::string, std::string> read_index(const std::string& path) {
    const Json index = parse_json_file(path);
    const Json& map = index.get("weight_map");
    CHECK_INPUT(map.is_object() && !map.members().empty(), "{}: no \"weight_map\" of tensors and files",
                path);
    std::map<std::string, std::string> files;
    for (const auto& [tensor, file] : map.members()) {
        const bool plain = file.is_string() && file.string().ends_with(".safetensors") &&
                           file.string().find('/') == std::string::npos &&
                           file.string().find('\0') == std::string::npos;
        CHECK_INPUT(plain, "{}: tensor '{}' is in {}, expected the name of a .safetensors file beside", path,
                    for_terminal(tensor), for_message(file));
        files[tensor] = file.string();
    }
    return files;
}

static void check_index(const HfWeights& w, const std::map<std::string, std::string>& index,
                        const std::string& dir) {
    for (const auto& [tensor, file] : index) {
        const HfWeights::Place* place = w.find(tensor);
        CHECK_INPUT(place && place->file->path == dir + "/" + file, "{}/{}: there is no tensor '{}', which "
                    "model.safetensors.index.json says is there", dir, file, for_terminal(tensor));
    }
    for (const auto& [tensor, place] : w.tensors)
        CHECK_INPUT(index.contains(tensor), "{}: the tensor '{}' is not in model.safetensors.index.json: the "
                    "file is another model's\n       fetch the folder again", place.file->path,
                    for_terminal(tensor));
}

HfWeights::HfWeights(const std::string& dir) {
    std::set<std::string> names = {"model.safetensors"};
    std::map<std::string, std::string> index;
    const std::string index_path = dir + "/model.safetensors.index.json";
    if (!file_exists(dir + "/model.safetensors")) {
        index = read_index(index_path);
        names.clear();
        for (const auto& [tensor, file] : index) names.insert(file);
        CHECK_INPUT(names.size() <= kMostFiles, "{}: it names {} files, expected {} at most", index_path,
                    names.size(), kMostFiles);
    }
    for (const std::string& name : names) {
        CHECK_INPUT(file_exists(dir + "/" + name), "{}/{}: there is no such file, which "
                    "model.safetensors.index.json names\n       fetch the folder again", dir, name);
        files.push_back(std::make_unique<SafetensorsFile>(dir + "/" + name));
        for (const TensorInfo& info : files.back()->tensors) {
            const bool first = tensors.insert({info.name, {files.back().get(), &info}}).second;
            CHECK_INPUT(first, "{}: the tensor '{}' is in {} as well", files.back()->path,
                        for_terminal(info.name), tensors.at(info.name).file->path);
        }
    }
    if (!index.empty()) check_index(*this, index, dir);
}

const HfWeights::Place* HfWeights::find(const std::string& name) const {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
}

// ---------------------------------------------------------------------------------------------------------
// values

void check_dtype(const HfWeights::Place& tensor) {
    for (const char* dtype : {"F32", "F16", "BF16", "F64"})
        if (tensor.info->dtype == dtype) return;
    CHECK_INPUT(false, "{}: tensor '{}' is {}, expected F32, F16, BF16 or F64", tensor.file->path,
                tensor.info->name, tensor.info->dtype);
}

template <class T> static void read_as(const HfWeights::Place& from, size_t first, size_t count, float* out) {
    std::vector<T> stored(count);
    from.file->read(*from.info, stored.data(), first * sizeof(T), count * sizeof(T));
    std::copy(stored.begin(), stored.end(), out);
}

void read_elements(const HfWeights::Place& from, size_t first, size_t count, float* out) {
    const std::string& dtype = from.info->dtype;
    if (dtype == "F32") from.file->read(*from.info, out, first * sizeof(float), count * sizeof(float));
    else if (dtype == "BF16") read_as<bfloat16>(from, first, count, out);
    else if (dtype == "F16") read_as<half>(from, first, count, out);
    else read_as<double>(from, first, count, out);
}

}  // namespace formats
