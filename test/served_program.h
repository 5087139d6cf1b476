// ./train_gpt as it serves a page.
#pragma once
#include <csignal>
#include <thread>

#include "test/http_client.h"
#include "test/program.h"

namespace test {

// The program: (process, its output so far).
struct Program {
    pid_t pid;
    std::string log;

    Program(const std::string& name, const std::string& args) : log(folder(name)) {
        const Ran ran = run("exec ./train_gpt " + args + " >" + log + " 2>&1 & echo $!");
        pid = pid_t(std::stol(ran.out));
    }
    ~Program() { kill(pid, SIGKILL); }
    bool says(const std::string& what) const {
        for (int wait = 0; wait < 100; wait++) {
            if (text_of(log).find(what) != std::string::npos) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        return false;
    }
    bool ends() const {
        for (int wait = 0; wait < 100 && kill(pid, 0) == 0; wait++)
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        return kill(pid, 0) != 0;
    }
};
inline int port_of(const std::string& log) {
    const size_t at = log.find("http://");
    return at == log.npos ? 0 : atoi(log.c_str() + log.find(':', at + 7) + 1);
}

}  // namespace test
