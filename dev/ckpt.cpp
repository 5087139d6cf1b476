// Looks at checkpoints.
//
//     dev/ckpt list RUN_DIR           the checkpoints of a run
//     dev/ckpt verify STEP_DIR...     reads all and compares with the hashes; exit code 79 where it differs
//     dev/ckpt describe STEP_DIR      what it holds
//     dev/ckpt diff STEP_DIR STEP_DIR two of them, tensor by tensor
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/train/save/recover.h"
#include "llmc/train/save/save.h"

using Rows = std::vector<std::vector<std::string>>;

static uint64_t bytes_of(const Manifest& m) {
    uint64_t sum = 0;
    for (const SavedFile& f : m.files) sum += f.bytes;
    return sum;
}

static Manifest manifest_of(const std::string& folder) {
    Verified v = verify_checkpoint(posix_disk(), folder, Check::Sizes);
    CHECK_INPUT(v.manifest, "{}/{}", folder, v.problem);
    return std::move(*v.manifest);
}

// ---------------------------------------------------------------------------------------------------------
// list, verify, describe

static int list(const std::string& run_dir) {
    const Disk disk = posix_disk();
    Rows rows = {{"step", "size", "files", "mesh", ""}};
    for (const int64_t step : saved_steps(disk, run_dir)) {
        const Verified v = verify_checkpoint(disk, run_dir + "/step_" + std::to_string(step), Check::Sizes);
        if (!v.manifest) { rows.push_back({std::to_string(step), "", "", "", v.problem}); continue; }
        rows.push_back({grouped(step), human_bytes(double(bytes_of(*v.manifest))),
                        std::to_string(v.manifest->files.size() + 1), v.manifest->mesh, ""});
    }
    if (rows.size() == 1) printf("%s holds no checkpoint\n", run_dir.c_str());
    else fputs(table(rows, "rrrll").c_str(), stdout);
    return 0;
}

static int verify(const std::vector<std::string>& folders) {
    int code = 0;
    for (const std::string& folder : folders) {
        const Verified v = verify_checkpoint(posix_disk(), folder);
        const std::string size = v.manifest ? human_bytes(double(bytes_of(*v.manifest))) : "";
        if (v.manifest) printf("%s: whole, %s\n", folder.c_str(), size.c_str());
        else printf("%s/%s\n", folder.c_str(), v.problem.c_str()), code = kExitCheckpoint;
    }
    return code;
}

static std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text;
    for (const int64_t n : shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
    return text;
}

static int describe(const std::string& folder) {
    const Manifest m = manifest_of(folder);
    printf("run %s, step %s, saved by %s\nsettings %s\n", m.run.c_str(), grouped(m.step).c_str(),
           m.mesh.c_str(), m.config.c_str());
    struct Entry { std::string dtype, shape; int pieces = 0; };
    std::map<std::pair<std::string, std::string>, Entry> tensors;
    for (const SavedPiece& p : m.pieces) {
        Entry& e = tensors[{p.tensor, p.array}];
        e = {p.dtype, shape_text(p.shape), e.pieces + 1};
    }
    Rows rows = {{"tensor", "part", "type", "shape", "pieces"}};
    for (const auto& [name, e] : tensors)
        rows.push_back({name.first, name.second, e.dtype, e.shape, std::to_string(e.pieces)});
    fputs(table(rows, "llllr").c_str(), stdout);
    Rows files = {{"file", "size"}};
    for (const SavedFile& f : m.files) files.push_back({f.name, human_bytes(double(f.bytes))});
    fputs(table(files, "lr").c_str(), stdout);
    return 0;
}

// ---------------------------------------------------------------------------------------------------------
// diff

static double value_at(const std::string& dtype, const std::byte* p) {
    const auto as = [p](auto v) { memcpy(&v, p, sizeof v); return double(v); };
    return dtype == "F64" ? as(0.0) : dtype == "BF16" ? as(bfloat16(0)) : as(0.0f);
}

// A whole tensor, from its pieces.
static std::vector<double> values_of(const std::string& folder,
                                     const std::vector<const SavedPiece*>& pieces) {
    const std::vector<int64_t>& shape = pieces[0]->shape;
    const size_t width = shape.size() > 1 ? size_t(shape[1]) : 1;
    std::vector<double> values(size_t(shape[0]) * width);
    for (const SavedPiece* p : pieces) {
        std::vector<std::byte> bytes(static_cast<size_t>(p->bytes()));
        const Fd fd = open_read(folder + "/" + p->file);
        pread_all(fd.fd, bytes.data(), bytes.size(), p->at, folder + "/" + p->file);
        const size_t cols = p->extent.size() > 1 ? size_t(p->extent[1]) : 1;
        const size_t col = p->start.size() > 1 ? size_t(p->start[1]) : 0, count = size_t(p->elements());
        for (size_t i = 0; i < count; i++)
            values[(size_t(p->start[0]) + i / cols) * width + col + i % cols] =
                value_at(p->dtype, bytes.data() + i * (bytes.size() / count));
    }
    return values;
}

using Tensors = std::map<std::pair<std::string, std::string>, std::vector<const SavedPiece*>>;
static Tensors tensors_of(const Manifest& m) {
    Tensors t;
    for (const SavedPiece& p : m.pieces) t[{p.tensor, p.array}].push_back(&p);
    return t;
}

static int diff(const std::string& a, const std::string& b) {
    const Manifest ma = manifest_of(a), mb = manifest_of(b);
    const Tensors ta = tensors_of(ma), tb = tensors_of(mb);
    Rows rows = {{"tensor", "part", "differ", "of", "largest", "at"}};
    size_t equal = 0;
    for (const auto& [name, pieces] : ta) {
        const auto other = tb.find(name);
        const auto note = [&, &name = name](const char* text) {
            rows.push_back({name.first, name.second, text, "", "", ""});
        };
        if (other == tb.end()) { note("only in the first"); continue; }
        const std::vector<double> x = values_of(a, pieces), y = values_of(b, other->second);
        if (x.size() != y.size()) { note("other shape"); continue; }
        size_t differ = 0, at = 0;
        double largest = 0;
        for (size_t i = 0; i < x.size(); i++) {
            if (memcmp(&x[i], &y[i], sizeof x[i]) == 0) continue;
            if (differ++ == 0 || !(std::abs(x[i] - y[i]) <= largest)) largest = std::abs(x[i] - y[i]), at = i;
        }
        if (differ == 0) { equal++; continue; }
        rows.push_back({name.first, name.second, std::to_string(differ), std::to_string(x.size()),
                        fmt::format("{:.3g}", largest), std::to_string(at)});
    }
    for (const auto& [name, pieces] : tb)
        if (!ta.count(name)) rows.push_back({name.first, name.second, "only in the second", "", "", ""});
    if (rows.size() > 1) fputs(table(rows, "llrrrr").c_str(), stdout);
    printf("%zu of %zu tensors are equal, bit for bit\n", equal, equal + rows.size() - 1);
    return rows.size() > 1;
}

int main(int argc, char** argv) {
    open_standard_streams();
    const std::vector<std::string> args(argv + 1, argv + argc);
    const auto is = [&](const char* command, size_t count) {
        return args.size() == count + 1 && args[0] == command;
    };
    if (is("list", 1)) return list(args[1]);
    if (args.size() > 1 && args[0] == "verify") return verify({args.begin() + 1, args.end()});
    if (is("describe", 1)) return describe(args[1]);
    if (is("diff", 2)) return diff(args[1], args[2]);
    fputs("usage: dev/ckpt list RUN_DIR | verify STEP_DIR... | describe STEP_DIR | diff STEP_DIR STEP_DIR\n",
          stderr);
    return kExitConfig;
}
