// A page of --explore to ask, and what --plan says of the same settings.
#pragma once
#include <fstream>

#include "test/served_program.h"

using namespace test;
using std::string;

// The page of a program that has no config of its own, or of `config`.
struct Explored {
    Program program;
    int port = 0;

    explicit Explored(const string& name, const string& config = "")
        : program(name, config + " --explore --port=0") {
        EXPECT(program.says("Ctrl-C"), "%s", text_of(program.log).c_str());
        port = port_of(text_of(program.log));
    }
    string get(const string& path, const string& query = "") const { return ask(port, path + "?" + query); }
    json object(const string& path, const string& query) const {
        const string answer = get(path, query);
        EXPECT(status(answer) == 200, "%s?%s: %s", path.c_str(), query.c_str(),
               answer.substr(0, 400).c_str());
        return json::parse(body(answer), nullptr, false);
    }
};

inline const string kGpu = "model.vocab=50257&cluster.gpu=h100&";

// "a=1&b=2" as options of the command line.
inline string options(const string& query) {
    string text;
    for (size_t begin = 0; begin < query.size();) {
        const size_t end = std::min(query.find('&', begin), query.size());
        if (end > begin) text += " '--" + query.substr(begin, end - begin) + "'";
        begin = end + 1;
    }
    return text;
}

// What --plan prints, without the settings, which the page has besides.
inline json without_settings(json plan) {
    if (plan.is_object()) plan.erase("settings");
    return plan;
}

inline json printed(const string& config, const string& query, const string& how = "--plan") {
    const Ran ran = run("./train_gpt " + config + options(query) + " " + how + " --json");
    EXPECT(ran.code == 0, "%s: %s", query.c_str(), ran.err.c_str());
    return without_settings(json::parse(ran.out, nullptr, false));
}

inline string empty_config() {
    const string path = folder("empty.json");
    std::ofstream(path) << "{}";
    return path;
}
