// Answers of --explore over HTTP. Every number is the planner's own.
//
//     /                the page; its state stands in its address
//     /start.json      where the page begins: config, GPUs of the table, presets
//     /plan.json?...   the object that --plan --json prints with these settings, without its settings
//     /detail.json?... the same, and what it is made of: the config, its price, ZeRO's stages, the step drawn
//     /speed.json?...  the same mesh on other numbers of GPUs
//     /best.json?...   the fastest mesh of so many GPUs, by --plan=search
//
// Impossible settings get status 400 and one line; `/` then sends the page, which shows the line. The server
// goes on.
#pragma once
#include <atomic>
#include <mutex>
#include <string>

#include "llmc/base/json/json_value.h"
#include "llmc/train/plan/planned.h"
#include "llmc/train/serve/http.h"

inline namespace explorer {

struct Exploration {
    Config base;                     // what an address does not set
    std::string command;             // of this program, with the settings of base
    Planner (*planner_of)(Config&);  // by run.precision, which it resolves
};

struct ExploreService {
    const Exploration& exploration;
    std::atomic<bool> stopping = false;  // ends a search
    std::mutex searching = {};           // a search takes all cores: one at a time

    HttpAnswer answer(const HttpRequest& request);

private:
    HttpAnswer page(HttpRequest request);
    Json start();
    Json plan(const HttpRequest& request);
    Json detail(const HttpRequest& request);
    Json speed(const HttpRequest& request);
    Json best(const HttpRequest& request);
};

}  // namespace explorer
