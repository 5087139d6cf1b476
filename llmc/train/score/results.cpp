#include "llmc/train/score/results.h"

#include <cmath>

#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/files/rows.h"

inline namespace scores {

double standard_error(double accuracy, int64_t documents) {
    return std::sqrt(accuracy * (1 - accuracy) / double(documents - 1));
}

void add_to_row(JsonLine& row, const TaskResult& r) {
    row.add("task", r.task).add("documents", r.documents).add("correct", r.correct)
        .add("accuracy", r.accuracy()).add("stderr", standard_error(r.accuracy(), r.documents))
        .add("chance", r.chance);
    if (r.correct_norm)
        row.add("correct_norm", *r.correct_norm).add("accuracy_norm", r.accuracy_norm())
            .add("stderr_norm", standard_error(r.accuracy_norm(), r.documents));
}

void write_result(const std::string& run_dir, int64_t step, const ScoredTask& scored) {
    const TaskResult& result = scored.result;
    const std::string path = run_dir + "/evals.jsonl", folder = run_dir + "/answers";
    JsonLine row("task");
    add_to_row(row.add("step", step), result);
    make_directories(run_dir);              // a run that trains has its folder
    const auto warn = [&](const char* what, const std::string& file, const std::string& reason) {
        if (!reason.empty())
            warning("cannot write {} of {} to {}: {}. They are missing there.", what, result.task, file,
                    reason);
    };
    warn("scores", path, try_append_row(path, row.str()));
    const std::string reason = try_own_folder(folder), file = folder + "/" + result.task + ".jsonl";
    if (reason.empty()) warn("answers", file, try_replace_file(file, scored.answers));
    else warn("answers", run_dir, reason);
}

void write_loss(const std::string& run_dir, int64_t step, const WholeLoss& r) {
    const double perplexity = std::exp(r.loss);
    JsonLine row("val");
    row.add("step", step).add("loss", r.loss).add("perplexity", perplexity).add("tokens", r.tokens);
    if (r.bits_per_byte) row.add("bits_per_byte", *r.bits_per_byte);
    make_directories(run_dir);
    const std::string path = run_dir + "/evals.jsonl";
    if (const std::string reason = try_append_row(path, row.str()); !reason.empty())
        warning("cannot write the loss to {}: {}. It is missing there.", path, reason);
    print("{}\n", table({{"task", "tokens", "loss", "perplexity", "bits per byte"},
                         {"loss", grouped(r.tokens), fmt::format("{:.5f}", r.loss),
                          fmt::format("{:.3f}", perplexity),
                          r.bits_per_byte ? fmt::format("{:.4f}", *r.bits_per_byte) : "n/a"}}, "l"));
}

std::string table_of_results(std::span<const TaskResult> results) {
    const auto percent = [](double share) { return fmt::format("{:.2f}", 100 * share); };
    const auto error = [&](double accuracy, int64_t n) {
        return n > 1 ? percent(standard_error(accuracy, n)) : std::string();
    };
    std::vector<std::vector<std::string>> rows = {
        {"task", "documents", "accuracy %", "std. error", "normalized %", "std. error", "chance %"}};
    for (const TaskResult& r : results) {
        std::vector<std::string> row = {r.task, grouped(r.documents), percent(r.accuracy()),
                                        error(r.accuracy(), r.documents), "", "", percent(r.chance)};
        if (r.correct_norm) {
            row[4] = percent(r.accuracy_norm());
            row[5] = error(r.accuracy_norm(), r.documents);
        }
        rows.push_back(row);
    }
    return table(rows, "l");
}

// "GPT-2 124M 31.14", three to a row.
static void add_rows(std::vector<std::vector<std::string>>& rows, const Json& references,
                     const std::string& task, Rule rule, const char* column) {
    static constexpr size_t kInRow = 3;
    size_t found = 0;
    for (const Json& r : references.list()) {
        if (r.at("task") != Json(task) || r.at("rule") != Json(kRules[size_t(rule)])) continue;
        const std::string score = fmt::format("{} {:.2f}", r.at("model").string(), r.at("score").number());
        if (found++ % kInRow == 0) {
            rows.push_back({found == 1 ? task : "", found == 1 ? column : "", score});
        } else {
            rows.back().back() += ", " + score;
        }
    }
}

std::string published_scores(std::span<const EvalTask> tasks, const std::string& path) {
    if (!file_exists(path)) return "";
    std::vector<std::vector<std::string>> rows;
    try {
        const Json references = parse_json(read_file(path));
        for (const EvalTask& t : tasks) {
            add_rows(rows, references, t.name, t.accuracy, "accuracy");
            if (t.accuracy_norm)
                add_rows(rows, references, t.name, *t.accuracy_norm, "normalized");
        }
    } catch (const std::exception& e) {
        warning("{}: {}; no published scores are shown", path, e.what());
        return "";
    }
    return rows.empty() ? "" : "\npublished, in % (" + path + " has the sources)\n" + table(rows, "lll");
}

}  // namespace scores
