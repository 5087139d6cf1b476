// Runs with run.elastic: agents that a test starts and ends, and what two runs have to have in common.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "test/program.h"

namespace test {

// An agent, and what it prints.
struct Started {
    pid_t id;
    std::string log;

    Started(const std::string& config, const std::string& args, const std::string& name,
            const std::string& environment = "", const std::string& program = "./train_gpt")
        : log(folder(name) + ".log") {
        const std::string command = fmt::format("exec env {} {} {} {} > {} 2>&1", environment, program,
                                                config, args, log);
        id = fork();
        if (id == 0) {
            execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
            _exit(127);
        }
    }
    Started(const Started&) = delete;
    ~Started() { stop(SIGKILL); }
    void stop(int signal) { if (id > 0) ::kill(id, signal); }
    // The exit code; -1: it did not end in time.
    int wait() {
        int status = 0;
        for (int i = 0; i < 6000; i++, usleep(10000)) {
            if (waitpid(id, &status, WNOHANG) != id) continue;
            id = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        return -1;
    }
};

inline std::string elastic_args(const std::string& run, const std::string& more) {
    return "--run.dir=" + folder(run) + " --run.elastic=true --parallel.transport=tcp " + more;
}

inline void wait_for_rows(const std::string& run, const std::string& event, size_t count) {
    for (int i = 0; i < 3000 && rows_of(run, event).size() < count; i++) usleep(10000);
    EXPECT(rows_of(run, event).size() >= count, "%s: %zu rows of %s", run.c_str(), rows_of(run, event).size(),
           event.c_str());
}

inline std::string hash_of(const std::string& run, int step) {
    return test::run(fmt::format("cat {}/step_{}/*.safetensors | sha256sum", folder(run), step)).out;
}

// Rows of training and validation, without times and what was lost.
inline std::string figures(const std::string& run) {
    std::string text;
    for (const json& row : rows_of(run))
        for (const char* key : {"loss", "norm", "tokens"})
            if (row.contains(key) && (row["event"] == "train" || row["event"] == "val"))
                text += fmt::format("{} {} {} {}\n", row["event"].dump(), row["step"].dump(), key,
                                    row[key].dump());
    return text;
}

inline std::string config_of(const std::string& name, int steps = 6) {
    return tiny_program_config(name, {{"run", {{"precision", "bf16"}}}, {"model", {{"layers", 4}}},
                                      {"train", {{"steps", steps}, {"batch_tokens", 256},
                                                 {"micro_batch", 1}}},
                                      {"eval", {{"every", 3}}}, {"checkpoint", {{"every", 3}}}});
}

}  // namespace test
