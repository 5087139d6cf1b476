// The rules, by hand.
#include "llmc/base/json/json_value.h"
#include "llmc/train/score/results.h"
#include "llmc/train/score/task.h"
#include "test/test.h"

using std::string;
using std::vector;

static EvalTask task_of(Rule rule, const vector<string>& continuations, int label = 0) {
    EvalTask t = {.name = "t", .accuracy = rule};
    t.documents.push_back({.id = 4, .label = label, .contexts = vector<string>(continuations.size(), "c"),
                           .continuations = continuations});
    return t;
}

TEST(each_rule_divides_by_its_own_length) {
    // " über" has 4 characters and 5 bytes without its space
    const vector<string> texts = {" \xc3\xbc" "ber", " abcd", "abcdef"};
    struct Case { Rule rule; vector<double> logprobs; int chosen; };
    const Case cases[] = {{Rule::Sum, {-3, -2, -2.5}, 1},
                          {Rule::Characters, {-4, -4.1, -6.1}, 0},
                          {Rule::Characters, {-4.1, -4.1, -6}, 2},        // six characters without a space
                          {Rule::Bytes, {-4.9, -4, -6.1}, 0},
                          {Rule::Bytes, {-5, -4, -6}, 0},                 // equal: the first
                          {Rule::Tokens, {-2.1, -4.1, -6}, 2}};
    for (const Case& c : cases) {
        const vector<Score> scores = {{c.logprobs[0], 2, true}, {c.logprobs[1], 4, false},
                                      {c.logprobs[2], 6, false}};
        const int chosen = choose(c.rule, task_of(c.rule, texts).documents[0], scores);
        EXPECT(chosen == c.chosen, "%s: %d chosen, expected %d", kRules[size_t(c.rule)], chosen, c.chosen);
    }
}

// A model that writes no number chooses nothing, and the first has no advantage.
TEST(what_is_not_a_number_is_not_chosen) {
    const EvalTask t = task_of(Rule::Sum, {"a", "b", "c"});
    const auto chosen = [&](double a, double b, double c) {
        const vector<Score> scores = {{a, 1, false}, {b, 1, false}, {c, 1, false}};
        return choose(Rule::Sum, t.documents[0], scores);
    };
    EXPECT(chosen(NAN, NAN, NAN) == -1 && chosen(NAN, -3, -2) == 2 && chosen(-3, NAN, -3) == 0 &&
               chosen(-INFINITY, -INFINITY, NAN) == 0, "%d", chosen(NAN, NAN, NAN));
}

TEST(greedy_is_right_where_each_token_is_the_likeliest) {
    const EvalTask t = task_of(Rule::Greedy, {" end"});
    for (const bool greedy : {true, false}) {
        const vector<Score> scores = {{-1, 1, greedy}};
        const TaskResult r = judge(t, scores).result;
        EXPECT(r.correct == greedy && r.chance == 0, "%d correct, chance %g", int(r.correct), r.chance);
    }
}

TEST(a_result_counts_documents) {
    EvalTask t = task_of(Rule::Sum, {"a", "bb"}, 1);
    t.accuracy_norm = Rule::Characters;
    t.documents.push_back({.id = "x", .label = 2, .contexts = {"", "", "", ""},
                           .continuations = {"a", "b", "c", "d"}});
    const vector<Score> scores = {{-2, 1, true}, {-3, 1, true}, {-3, 1, true}, {-2, 1, true}, {-1, 1, true},
                                  {-4, 1, true}};
    const auto [r, text] = judge(t, scores);
    EXPECT(r.documents == 2 && r.correct == 1 && r.correct_norm == 2, "%d and %d right", int(r.correct),
           int(*r.correct_norm));
    EXPECT_NEAR(r.chance, (1. / 2 + 1. / 4) / 2, 1e-15);
    EXPECT_NEAR(standard_error(0.3, 22), std::sqrt(0.3 * 0.7 / 21), 1e-15);
    JsonLine row("task");
    add_to_row(row, r);
    const Json v = parse_json(row.str());
    EXPECT(v.at("accuracy").number() == 0.5 && v.at("correct_norm").integer() == 2 &&
           v.at("stderr").number() == 0.5 && v.at("stderr_norm").number() == 0, "%s", row.str().c_str());
    EXPECT(text == "{\"doc_id\":4,\"label\":1,\"chosen\":0,\"chosen_norm\":1,\"logprob\":[-2.0,-3.0],"
                   "\"tokens\":[1,1],\"greedy\":[true,true]}\n"
                   "{\"doc_id\":\"x\",\"label\":2,\"chosen\":2,\"chosen_norm\":2,"
                   "\"logprob\":[-3.0,-2.0,-1.0,-4.0],\"tokens\":[1,1,1,1],"
                   "\"greedy\":[true,true,true,true]}\n",
           "%s", text.c_str());
}
