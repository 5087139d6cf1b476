// What --explore begins with: a config or none, and machines of the table or of a file.
#include "test/train/explore/explored.h"

// The picker offers cluster.file's machine beside the table's: an address that names a GPU leaves the file.
TEST(a_machine_of_a_file_is_one_of_the_kinds) {
    const string path = folder("own.json"), state = "parallel.ranks=8&train.batch_tokens=65536";
    std::ofstream(path) << R"({"gpu": "h100", "node_gbs": 3})";
    const string config = tiny_program_config("explored");
    const Explored page("file.log", config + " --cluster.file=" + path);
    const json own = page.object("/start.json", "")["own_machine"];
    EXPECT(own["gpu"] == "h100" && own["node_gbs"] == 3, "%s", own.dump().c_str());
    const json by_file = page.object("/plan.json", state), table = page.object("/plan.json",
                                                                               state + "&cluster.gpu=h100");
    EXPECT(by_file == printed(config, "cluster.file=" + path + "&" + state), "another plan");
    EXPECT(table == printed(config, "cluster.gpu=h100&" + state) && table != by_file, "the picker is deaf");
}

TEST(a_page_without_a_config_prints_a_command_that_runs) {
    const Explored page("bare.log");
    const string state = kGpu + "parallel.ranks=8&train.batch_tokens=524288";
    const string command = page.object("/detail.json", state)["command"];
    EXPECT(command.starts_with("./train_gpt '{}' --"), "%s", command.c_str());
    const Ran ran = run(command + " --json");
    const json plan = without_settings(json::parse(ran.out, nullptr, false));
    EXPECT(ran.code == 0 && plan == page.object("/plan.json", state), "%s", ran.err.c_str());
}
